"""`fedbo join` without its screen: a study that takes part in a federation, run to its end.

Everything is in the study, so a stopped command can be run again, and several may run at once.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any, Literal, Protocol, Self

import msgspec
import optuna
from optuna.exceptions import OptunaError
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from fedbo.exchange import Exchange, Ledger
from fedbo.federation import Federation, FederationMismatch
from fedbo.message import Heard, Kind
from fedbo.message.release import is_draw
from fedbo.message.signed import PARTS, Fingerprint
from fedbo.optuna import record, studies
from fedbo.optuna.distributions import Translation
from fedbo.optuna.objective import Objective, last_line
from fedbo.optuna.sampler import FederatedSampler
from fedbo.optuna.study_agent import Recipe, StudyAgent
from fedbo.policy import RGPE, Origin, Policy, TipsThenPool

FAILURES = 3  # failed trials in a row after which the command stops

POLICIES: dict[Kind, type[Policy]] = {
    "compact": TipsThenPool,
    "weights": TipsThenPool,
    "belief": RGPE,
}

Ending = Literal["done", "stopped", "failing"]


class JoinRefused(ValueError):
    """A study cannot take part in the federation, and was not changed."""


class StorageFailed(RuntimeError):
    """The storage did not store a trial; the text has the score."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """How a trial ended: ``why`` it failed, and whether it is the ``best`` so far."""

    number: int
    state: TrialState
    score: float | None
    origin: Origin | None
    why: str = ""
    best: bool = False


class Watcher(Protocol):
    """Is told when a trial begins, with the origin of its query if known, and when it ends."""

    def begun(self, number: int, origin: Origin | None) -> None: ...

    def ended(self, step: Step) -> None: ...


class Interrupt:
    """Ctrl-C in a block: the first sets ``asked`` and calls ``notice``, the second interrupts.

    A program that ignores Ctrl-C, as programs in the background of a shell do, still ignores it.
    """

    def __init__(self, notice: Callable[[], None]) -> None:
        self.asked = False
        self._notice = notice
        self._before: Any = None

    def __enter__(self) -> Self:
        before = signal.getsignal(signal.SIGINT)
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and before not in (signal.SIG_IGN, None):
            self._before = before
            signal.signal(signal.SIGINT, self._first)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _first(self, _: int, __: FrameType | None) -> None:
        self.asked = True
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._notice()


class CountedLedger(Ledger):
    """A ledger that counts the messages that an exchange has taken."""

    sent = 0
    problem = ""  # why the exchange did not take the last one

    def publish(self, exchange: Exchange, message: Heard, study: str = "") -> bool:
        self.problem = "the exchange did not take it, as a warning says"
        is_out = super().publish(exchange, message, study)
        self.sent += is_out
        self.problem = ""
        if not is_out:
            self.problem = (
                f"{exchange.address} already has a later message under the name "
                f"{message.sender!r}, or one that was withdrawn"
            )
        return is_out


@dataclass
class Site:
    """A study that takes part in a federation, and the objective that it tunes."""

    study: optuna.Study
    sampler: FederatedSampler
    objective: Objective
    ledger: CountedLedger

    @property
    def name(self) -> str | None:
        """The name among peers; None if it is not drawn yet."""
        known = record.identity(self.study)
        return self.sampler.name if known is None else known.name

    @property
    def silence(self) -> str:
        """Why no message was sent in this run; empty if one was."""
        if self.ledger.sent:
            return ""
        return self.ledger.problem or self.sampler.silence

    def trials(self, *states: TrialState) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False, states=states)

    @property
    def finished(self) -> int:
        """The number of trials that are complete or pruned."""
        return len(self.trials(TrialState.COMPLETE, TrialState.PRUNED))

    @property
    def best(self) -> FrozenTrial | None:
        return self.study.best_trial if self.trials(TrialState.COMPLETE) else None

    @property
    def received(self) -> int:
        """The number of messages that this process has received."""
        agent = self.sampler.agent
        return 0 if agent is None else agent.account.received.messages

    @property
    def peers(self) -> int:
        """The number of peers whose messages the agent holds; a private release is one of them."""
        agent = self.sampler.agent
        senders = [] if agent is None else agent.inbox.senders
        return sum(not is_draw(name) for name in senders) + any(map(is_draw, senders))

    def run(self, trials: int, watcher: Watcher, interrupt: Interrupt) -> Ending:
        """Run trials until the study has this many finished ones, or until it is interrupted."""

        def begun(number: int) -> None:
            watcher.begun(number, record.read_origin(self._trial(number)))

        self.objective.begun = begun
        failures = 0
        try:
            while self.finished < trials:
                if interrupt.asked:
                    return "stopped"
                step = self._run_one()
                watcher.ended(step)
                failures = failures + 1 if step.state == TrialState.FAIL else 0
                if failures == FAILURES and not interrupt.asked:
                    return "failing"
            return "done"
        except KeyboardInterrupt:
            if self.objective.trial is not None:
                with contextlib.suppress(Exception):  # it is finished, or its heartbeats will stop
                    self.study.tell(self.objective.trial.number, state=TrialState.FAIL)
            return "stopped"
        except (OptunaError, SQLAlchemyError) as error:
            raise StorageFailed(self._not_stored(error)) from error

    def _trial(self, number: int) -> FrozenTrial:
        return self.study.get_trials(deepcopy=False)[number]

    def _run_one(self) -> Step:
        """Run one trial. An error that the objective did not raise is passed on."""
        before, why, objective = self.best, "", self.objective
        objective.trial = None
        number: int | None = None
        try:
            self.study.optimize(objective, n_trials=1)
        except Exception as error:
            if error is objective.error and not isinstance(error, FederationMismatch):
                why = last_line(error)
            else:
                number = self._store_again()
                if number is None:
                    raise
        if number is None:
            assert objective.trial is not None
            number = objective.trial.number
        trial, best = self._trial(number), self.best
        return Step(
            number=number,
            state=trial.state,
            score=trial.value,
            origin=record.read_origin(trial),
            why=why,
            best=best is not None and best.number == number and best != before,
        )

    def _store_again(self) -> int | None:
        """Store the last score as a new trial, if another worker marked its trial as failed.

        That happens if there was no heartbeat for minutes, for example because a laptop slept.
        Returns the number of the new trial; None if no score was lost.
        """
        if self.objective.trial is None or self.objective.value is None:
            return None
        lost = self._trial(self.objective.trial.number)
        if lost.state != TrialState.FAIL:
            return None
        self.study.add_trial(
            optuna.trial.create_trial(
                value=self.objective.value,
                params=lost.params,
                distributions=lost.distributions,
                user_attrs=lost.user_attrs,
            )
        )
        same = (t for t in reversed(self.trials(TrialState.COMPLETE)) if t.params == lost.params)
        return next(same).number

    def _not_stored(self, error: Exception) -> str:
        trial, value = self.objective.trial, self.objective.value
        lost = ""
        if trial is not None and value is not None:
            lost = f" Trial {trial.number}, with {trial.params}, scored {value!r}."
        return (
            f"the storage failed: {studies.reason(error)}.{lost} What was stored before is safe: "
            "repair the storage and run the same command again to continue"
        )


def sampler(federation: Federation, exchange: Exchange | None, **options: Any) -> FederatedSampler:
    """Return a sampler with the policy that can use this federation's kind of message."""
    return FederatedSampler(federation, exchange, policy=POLICIES[federation.kind](), **options)


def own_federations(study: optuna.Study) -> list[Federation]:
    """Return the federations that a study without a federation file takes part in, or did.

    They are those of all spaces that it had, for all kinds of messages: a study does not store its
    policy.
    """
    found: list[Federation] = []
    for kind, policy in POLICIES.items():
        recipe = Recipe(
            federation=None, policy=policy(), settings=None, seed=None, name=None, clip=False
        )
        spaces = [StudyAgent(study, recipe).common_space(cached=False), *record.spaces(study)]
        federations = [recipe.agreed(study, Translation(space), kind) for space in spaces if space]
        found += {federation.fingerprint: federation for federation in federations}.values()
    return found


def check(study: optuna.Study, federation: Federation) -> None:
    """Raise `JoinRefused` for a study of another federation.

    A later epoch of the study's federation is accepted, and an earlier one is refused.
    """
    mine, agreed = f"study {study.study_name!r}", federation.space.direction
    problem = ""
    if len(study.directions) > 1:
        problem = f"has {len(study.directions)} objectives, but a federation tunes one"
    elif study.direction.name.lower() != agreed:
        problem = f"has direction {study.direction.name.lower()}, but the federation has {agreed}"
    if problem:
        raise JoinRefused(f"{mine} {problem}; give another with --study")
    known = record.identity(study)
    if known is None:
        return
    part = None  # of the agreement in which the study's federation differs
    with contextlib.suppress(ValueError):  # a study without a federation has no fingerprint
        began = Fingerprint(bytes.fromhex(known.federation.replace("-", "")))
        part = federation.fingerprint.difference(began)
    if part in (None, "scalars") and federation.epoch < known.epoch:
        raise JoinRefused(
            f"{mine} has gone on to epoch {known.epoch} of its federation, and the file is of "
            f"epoch {federation.epoch}: use the later file. The study was not changed"
        )
    if part is not None and not (part == "scalars" and federation.epoch > known.epoch):
        raise JoinRefused(
            f"{mine} began in federation {known.federation}, but the file now is "
            f"{federation.fingerprint}: {PARTS[part]}. The study was not changed. Use the file "
            "that it began with, or start another study with --study"
        )
