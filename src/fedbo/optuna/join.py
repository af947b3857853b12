"""`fedbo join` without its screen: a study that takes part, and trials until there are enough.

All that lasts is in the study. So whoever is stopped, or killed, goes on by doing the same again,
and several processes may do it at once.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Literal, Protocol, Self

import msgspec
import optuna
from optuna.exceptions import OptunaError
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from fedbo.exchange import Exchange, Ledger
from fedbo.federation import Federation, FederationMismatch
from fedbo.message import Kind, Message
from fedbo.message.fingerprint import PARTS, Fingerprint
from fedbo.optuna import record, studies
from fedbo.optuna.objective import Objective, last_line
from fedbo.optuna.sampler import FederatedSampler
from fedbo.policy import PTS, RGPE, TAF, Policy

FAILURES = 3  # in a row, after which it is no accident

_POLICIES: dict[Kind, type[Policy]] = {"weights": PTS, "belief": RGPE, "belief+incumbent": TAF}

Ending = Literal["done", "stopped", "failing"]


class JoinRefused(ValueError):
    """A study that cannot take part as it stands; the text says why. It was left as it is."""


class StorageFailed(RuntimeError):
    """The storage did not take what it was given; the text says what that was."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a trial: ``why`` it failed, and whether it is the ``best`` so far."""

    number: int
    state: TrialState
    score: float | None
    origin: record.Origin | None
    why: str = ""
    best: bool = False


class Watcher(Protocol):
    """Who wants to know how it goes."""

    def begun(self, number: int, origin: record.Origin | None) -> None:
        """A trial is about to be evaluated; where it came from, if that is known by now."""

    def ended(self, step: Step) -> None:
        """It is done."""


class Interrupt:
    """Ctrl-C, twice. The first lets the running trial finish, which loses nothing; the second ends.

    ``asked`` is whether the first has come; ``notice`` is called then. A program that was told to
    ignore Ctrl-C, as shells do for what runs in the background, still does.
    """

    def __init__(self, notice: Callable[[], None]) -> None:
        self.asked = False
        self._notice = notice
        self._before: Any = None

    def __enter__(self) -> Self:
        self._before = signal.getsignal(signal.SIGINT)
        main = threading.current_thread() is threading.main_thread()
        if main and self._before not in (signal.SIG_IGN, None):
            signal.signal(signal.SIGINT, self._first)
        else:
            self._before = None
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _first(self, _: int, __: FrameType | None) -> None:
        self.asked = True
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._notice()


class CountedLedger(Ledger):
    """The log, and how many messages it got to an exchange since it was made."""

    sent = 0

    def publish(self, exchange: Exchange, message: Message) -> bool:
        is_out = super().publish(exchange, message)
        self.sent += is_out
        return is_out


class Site:
    """A study that takes part in a federation, and the objective that it tunes."""

    def __init__(
        self,
        study: optuna.Study,
        sampler: FederatedSampler,
        objective: Objective,
        ledger: CountedLedger,
    ) -> None:
        self.study, self.sampler, self.objective = study, sampler, objective
        self.ledger = ledger

    @property
    def name(self) -> str | None:
        """The agent's, once the study has one."""
        known = record.identity(self.study)
        return self.sampler.name if known is None else known.name

    def trials(self, *states: TrialState) -> list[FrozenTrial]:
        """Those of the study that ended so, by any worker."""
        return self.study.get_trials(deepcopy=False, states=states)

    @property
    def finished(self) -> int:
        """Trials that came to their end, by a score or by being pruned; not failed ones."""
        return len(self.trials(TrialState.COMPLETE, TrialState.PRUNED))

    @property
    def best(self) -> FrozenTrial | None:
        return self.study.best_trial if self.trials(TrialState.COMPLETE) else None

    @property
    def received(self) -> int:
        """Messages that this process took in."""
        agent = self.sampler.agent
        return 0 if agent is None else agent.account.received.messages

    @property
    def peers(self) -> int:
        """Whose messages it holds."""
        agent = self.sampler.agent
        return 0 if agent is None else len(agent.inbox)

    def run(self, trials: int, watcher: Watcher, interrupt: Interrupt) -> Ending:
        """Evaluate until the study has so many finished trials, or somebody wants it to stop."""
        self.objective.begun = lambda number: watcher.begun(number, self._origin(number))
        try:
            return self._until(trials, watcher, interrupt)
        except KeyboardInterrupt:
            self._give_up()
            return "stopped"
        except (OptunaError, SQLAlchemyError) as error:
            raise StorageFailed(self._not_stored(error)) from error

    def _until(self, trials: int, watcher: Watcher, interrupt: Interrupt) -> Ending:
        failures = 0
        while self.finished < trials:
            if interrupt.asked:
                return "stopped"
            step = self._one()
            watcher.ended(step)
            failures = failures + 1 if step.state == TrialState.FAIL else 0
            if failures == FAILURES and not interrupt.asked:
                return "failing"
        return "done"

    def _origin(self, number: int) -> record.Origin | None:
        return record.read_origin(self.study.get_trials(deepcopy=False)[number])

    def _one(self) -> Step:
        """One trial; an error that is not the objective's own is the caller's."""
        before, why = self.best, ""
        self.objective.trial = None
        try:
            self.study.optimize(self.objective, n_trials=1)
            number = self._number
        except Exception as error:
            if error is self.objective.error and not isinstance(error, FederationMismatch):
                number, why = self._number, last_line(error)
            elif self._taken_for_dead():
                number = self._enter_anew()
            else:
                raise
        trial, best = self.study.get_trials(deepcopy=False)[number], self.best
        return Step(
            number=number,
            state=trial.state,
            score=trial.value,
            origin=record.read_origin(trial),
            why=why,
            best=best is not None and best.number == number and best != before,
        )

    @property
    def _number(self) -> int:
        """Of the trial that was begun last."""
        assert self.objective.trial is not None
        return self.objective.trial.number

    def _taken_for_dead(self) -> bool:
        """Whether another worker marked the trial as failed before its score could be stored.

        That happens where no heartbeat came through for minutes: a laptop slept, say.
        """
        if self.objective.trial is None or self.objective.value is None:
            return False
        trials = self.study.get_trials(deepcopy=False)
        return trials[self._number].state == TrialState.FAIL

    def _enter_anew(self) -> int:
        """Store the score of a trial that was taken for dead as a trial of its own; its number."""
        dead = self.study.get_trials(deepcopy=False)[self._number]
        self.study.add_trial(
            optuna.trial.create_trial(
                value=self.objective.value,
                params=dead.params,
                distributions=dead.distributions,
                user_attrs=dead.user_attrs,
            )
        )
        same = (t for t in reversed(self.trials(TrialState.COMPLETE)) if t.params == dead.params)
        return next(same).number

    def _not_stored(self, error: Exception) -> str:
        trial, value = self.objective.trial, self.objective.value
        lost = ""
        if trial is not None and value is not None:
            lost = f" Trial {trial.number}, with {trial.params}, scored {value!r}."
        return (
            f"the storage failed: {studies.reason(error)}.{lost} What was stored before is safe: "
            "see to the storage, and the same command goes on"
        )

    def _give_up(self) -> None:
        """Mark the trial that was being evaluated as failed, if Optuna has not."""
        if self.objective.trial is not None:
            with contextlib.suppress(Exception):  # it is finished, or heartbeats will tell
                self.study.tell(self.objective.trial.number, state=TrialState.FAIL)


def sampler(federation: Federation, exchange: Exchange | None, **options: Any) -> FederatedSampler:
    """A sampler with the policy that can use this federation's kind of message."""
    return FederatedSampler(federation, exchange, policy=_POLICIES[federation.kind](), **options)


def check(study: optuna.Study, federation: Federation, name: str | None = None) -> None:
    """Raise `JoinRefused` if the study is not one of this federation, or its agent not this one.

    A later epoch of the federation is the same one: only its scalars may differ. There is no way
    back to an earlier one.
    """
    if len(study.directions) > 1:
        raise JoinRefused(
            f"study {study.study_name!r} has {len(study.directions)} objectives, and a federation "
            "tunes one; give another with --study"
        )
    direction = study.direction.name.lower()
    if direction != federation.space.direction:
        raise JoinRefused(
            f"study {study.study_name!r} is to {direction} and the federation to "
            f"{federation.space.direction}; give another with --study"
        )
    known = record.identity(study)
    if known is None:
        return
    part = _difference(known, federation)
    if part in (None, "scalars") and federation.epoch < known.epoch:
        raise JoinRefused(
            f"study {study.study_name!r} has gone on to epoch {known.epoch} of its federation, and "
            f"the file is of epoch {federation.epoch}: use the later file. The study is as it was"
        )
    if part is not None and not (part == "scalars" and federation.epoch > known.epoch):
        raise JoinRefused(
            f"study {study.study_name!r} began in federation {known.federation}, and the file now "
            f"is {federation.fingerprint}: {PARTS[part]}. The study is as it was. Go on with the "
            "file that it began with, or begin another with --study"
        )
    if name not in (None, known.name):
        raise JoinRefused(
            f"peers know study {study.study_name!r} as {known.name!r}, and --name is {name!r}: "
            "leave it out, or begin another study with --study"
        )


def _difference(known: record.Identity, federation: Federation) -> str | None:
    """The part of the agreement in which the study's federation is another one."""
    try:
        began = Fingerprint(bytes.fromhex(known.federation.replace("-", "")))
    except ValueError:
        return None  # not known
    return federation.fingerprint.difference(began)
