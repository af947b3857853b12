"""A study that exists, whichever sampler made it: `fedbo study` without its screen.

Its message is the one that a `FederatedSampler` would publish after the same trials, and the study
stores the same record as with one: if it is run with one later, it goes on as the same agent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import optuna
from optuna.trial import FrozenTrial

from fedbo import caller
from fedbo.agent.agent import Agent
from fedbo.agent.settings import Settings
from fedbo.errors import FederationMismatch, StudyRefused
from fedbo.exchange import Exchange, Ledger
from fedbo.federation.federation import Federation
from fedbo.message import Kind, Message
from fedbo.optuna import standing
from fedbo.optuna.distributions import misfit
from fedbo.optuna.mail import rival
from fedbo.optuna.study import SCORED, Mirror, Options, StudyAgent, StudyRecord, read_record
from fedbo.policy import RGPE, Policy, TipsThenPool
from fedbo.trust import Keyring

_POLICIES: dict[Kind, type[Policy]] = {
    "compact": TipsThenPool,
    "weights": TipsThenPool,
    "belief": RGPE,
}


class Published(NamedTuple):
    """What a study has left at an exchange.

    Args:
        message: The message.
        is_new: Whether it is another one than was there before.
        trials: How many finished trials the study has. The message may be about fewer.
    """

    message: Message
    is_new: bool
    trials: int


class StoredStudy:
    """A study with one objective and a finished trial. No trial is run.

    Args:
        study: The study, finished or not.
        federation: The federation; None for the study's own parameters, which is for `agent` only.
        name: The name of the study among peers. Default: the one that it has, or drawn.
        settings: The settings of the agent. Default: those of `fedbo.Agent`.

    Raises:
        StudyRefused: If the study has several objectives, another direction, no finished trial,
            parameters that are not the federation's, or takes part in another federation.
    """

    def __init__(
        self,
        study: optuna.Study,
        federation: Federation | None = None,
        *,
        name: str | None = None,
        settings: Settings | None = None,
    ) -> None:
        self.study, self.federation = study, federation
        self._scored = study.get_trials(deepcopy=False, states=SCORED)
        self._shown = f"study {study.study_name!r}"
        # A study stores neither the policy nor the settings of its agent.
        policy = _POLICIES["compact" if federation is None else federation.kind]()
        clip = federation is not None and federation.space.points is None
        self._options = Options(
            federation=federation, policy=policy, settings=settings, name=name, clip=clip
        )
        self._check()

    @property
    def record(self) -> StudyRecord | None:
        """What the study stores about its agent; None before it has published or been asked."""
        return read_record(self.study)

    def agent(self) -> Agent:
        """Return the agent of a study, told all its trials; it holds no messages of peers.

        Raises:
            StudyRefused: If no trial was asked for by fedbo, or the study has a federation file.
        """
        record, federation = self.record, self.federation
        if record is None:
            raise StudyRefused(
                f"{self._shown} has no trial that fedbo asked for: there is nothing to explain"
            )
        if federation is None and record.federation:
            raise StudyRefused(
                f"{self._shown} takes part in the federation {record.federation}: give its file "
                "with --federation"
            )
        return self._look(StudyAgent(self.study, self._options)).agent

    def message(self, exchange: Exchange) -> Message:
        """Return the message that would be published now at an exchange, without a signature.

        Nothing is sent, and nothing is stored. Unless the study has published before, its noise and
        its name are drawn again when it does.
        """
        assert self.federation is not None
        agent = StudyAgent(self.study, self._options)
        agent.speak_as(standing.sender_at(exchange, self.federation, agent.expected()))
        return self._look(agent).agent.message()

    def publish(self, exchange: Exchange, *, ledger: Ledger | None = None) -> Published:
        """Publish the message, unless the exchange has it already.

        Args:
            exchange: Where to publish.
            ledger: The log of all messages that are sent. Default: the user's log.

        Raises:
            StudyRefused: If it cannot be published; then the study is not changed.
            ExchangeError: If the exchange cannot be reached, or refuses it.
        """
        assert self.federation is not None
        mirror = self._look(StudyAgent(self.study, self._options))
        mirror.agent.message()  # or an error, before the study is changed
        scores = mirror.scores
        agent, ledger = StudyAgent(self.study, self._options), ledger or Ledger()
        keyring, record = exchange.keyring or Keyring.user(), agent.expected()
        ours = standing.standing_of(exchange, self.federation, record, keyring)
        with caller.collect():  # what is wrong with messages of others
            heard = [] if ours.silence else exchange.fetch(self.federation)
        messages = [trusted.content for trusted in heard]
        rivals = (rival(ledger, record, ours, each, scores) for each in messages)
        if silence := ours.silence or next(filter(None, rivals), ""):
            raise StudyRefused(f"nothing was published: {silence}")
        standing.introduce(agent, ours, keyring)
        message = agent.follow(agent.beside(cached=False)).agent.message()
        if not ledger.publish(exchange, message, study=agent.introduce().study):
            raise StudyRefused(
                f"{exchange.address} does not take this message: it already has a later one under "
                f"the name {message.sender!r}, or this one was withdrawn. Run another trial, and "
                "publish the message that follows"
            )
        return Published(message, message not in messages, len(self._scored))

    def withdraw(self, exchange: Exchange, ledger: Ledger | None = None) -> bool:
        """Withdraw the study's message from the exchange; return whether there was one.

        Raises:
            StudyRefused: If the study has no name among peers, because it never published.
            ExchangeError: If another study has sent the message, or withdrawing failed.
            KeyRefused: If the study's private key is not on this machine.
        """
        assert self.federation is not None
        record = self.record
        if record is None:
            raise StudyRefused(f"{self._shown} has never published a message")
        return standing.withdraw(exchange, ledger or Ledger(), self.federation, record)

    def _look(self, agent: StudyAgent) -> Mirror:
        with caller.collect():  # a study gives its warnings when it runs
            mirror = agent.look()
        if mirror is None:
            raise StudyRefused(f"{self._shown} has no parameter that all trials share")
        if not mirror.scores:
            raise StudyRefused(f"{self._shown} has no score at a point of its federation's space")
        return mirror

    def _check(self) -> None:
        if len(self.study.directions) > 1:
            raise StudyRefused(
                f"{self._shown} has {len(self.study.directions)} objectives, expected one"
            )
        if not self._scored:
            raise StudyRefused(f"{self._shown} has no finished trial: run one")
        if self.federation is None:
            return
        try:
            self._options.federation_of(self.study, {})
        except FederationMismatch as error:
            raise StudyRefused(str(error)) from None
        began, fingerprint = self.record, self.federation.fingerprint
        if began is not None and began.federation not in ("", str(fingerprint)):
            raise StudyRefused(
                f"{self._shown} takes part in the federation {began.federation}, but the file is "
                f"of {fingerprint}. Give the file that the study was run with"
            )
        if faults := misfits(self._scored, self.federation):
            lines = [f"{self._shown} does not have the parameters of the federation:", *faults]
            raise StudyRefused("\n  ".join(lines))


def misfits(scored: Sequence[FrozenTrial], federation: Federation) -> list[str]:
    """Return how the parameters of trials differ from a federation's, one line for each.

    A parameter fits if any trial has it as the federation does, or in a narrower range: the agent
    leaves other trials out.
    """
    lines, theirs = [], federation.space.parameters
    for name, parameter in theirs.items():
        ours = [trial.distributions[name] for trial in scored if name in trial.distributions]
        faults = [misfit(each, parameter, clip=True, where="the study") for each in ours]
        if not ours:
            lines.append(f"parameter {name!r} is not in the study")
        elif all(faults):
            lines.append(f"parameter {name!r}: {faults[-1]}")
    return lines
