"""`fedbo publish` without its screen: a study that exists leaves its message, and runs no trial.

It does not matter which sampler made the study. The message is the one that a `FederatedSampler`
would publish after the same trials, and the study stores the same name and secret as with one: if
it is run with one later, it goes on as the same agent.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import msgspec
import optuna
from optuna.trial import FrozenTrial

from fedbo import caller
from fedbo.agent import Agent, Settings
from fedbo.exchange import Exchange, ExchangeError, ExchangeWarning, Ledger
from fedbo.exchange.ledger import NotOurs
from fedbo.federation import Federation
from fedbo.federation.scalars import Scalars
from fedbo.identity import Keyring
from fedbo.message import Message
from fedbo.optuna import join, record, signing
from fedbo.optuna.distributions import mismatch
from fedbo.optuna.mailbox import former_messages, has_namesake
from fedbo.optuna.mirror import Mirror
from fedbo.optuna.notices import misspellings, namesake
from fedbo.optuna.standing import standing_at
from fedbo.optuna.study_agent import SCORED, Recipe, StudyAgent


class PublishRefused(ValueError):
    """A study has no message that could be published; the text says why."""


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """What a study has left at an exchange.

    Args:
        message: The message.
        is_new: Whether it is another one than was there before.
        scalars: What was shared beside it; None if nothing was.
        are_scalars_new: Whether these were shared for the first time.
        trials: How many finished trials the study has. The message may be about fewer.
    """

    message: Message
    is_new: bool
    scalars: Scalars | None
    are_scalars_new: bool
    trials: int


class Publication:
    """The message of a study, and where it goes.

    Args:
        study: The study, finished or not.
        exchange: Where to publish.
        federation: The federation; None makes one of the parameters that all trials share.
        name: The name of the study among peers. Default: the one that it has, or drawn.
        signed: Whether to sign, as for `FederatedSampler`.
        ledger: The log of all messages that are sent. Default: the user's log.
        settings: The settings of the agent. Default: those of `fedbo.Agent`.

    Raises:
        PublishRefused: If the study has several objectives, another direction, no finished trial,
            or parameters that are not the federation's.
    """

    def __init__(
        self,
        study: optuna.Study,
        exchange: Exchange,
        federation: Federation | None = None,
        *,
        name: str | None = None,
        signed: bool | None = None,
        ledger: Ledger | None = None,
        settings: Settings | None = None,
    ) -> None:
        self.study, self.exchange, self.federation = study, exchange, federation
        self.ledger = Ledger() if ledger is None else ledger
        self.name, self._signed, self._settings = name, signed, settings
        self._keyring = exchange.keyring or Keyring.user()
        self._scored = study.get_trials(deepcopy=False, states=SCORED)
        _check(study, federation, self._scored)

    @property
    def known(self) -> bool:
        """Whether the study has a name and a secret already."""
        return record.identity(self.study) is not None

    def preview(self) -> tuple[Message, str]:
        """Return the message, without a signature, and why it cannot be published; empty if it can.

        Nothing is sent, and nothing is stored. Unless the study has published before, its noise and
        its name are drawn again when it does.
        """
        mirror = self._agent(None, named(self.study, self.exchange, *self._agreed())).look()
        message = self._of_scores(mirror).agent.message()
        return message, self._hindrance()

    def publish(self, *, scalars: bool = False) -> Published:
        """Publish the message, unless the exchange has it already.

        Args:
            scalars: Whether to share fitted length scales and noise beside it.

        Raises:
            PublishRefused: If it cannot be published; then the study is not changed.
            ExchangeError: If the exchange cannot be reached, or refuses it.
        """
        with caller.collect():  # what there is to say is said when the study is followed
            looked = self._of_scores(self._agent(None, self.name).look())
        if scalars and type(self.exchange).share is Exchange.share:
            raise PublishRefused(
                f"{self.exchange.address} cannot carry scalars, only a hub can: leave out --scalars"
            )
        if scalars and self.federation is not None and self.federation.privacy is not None:
            raise PublishRefused(
                "the federation has a privacy plan, which does not cover scalars: leave out "
                "--scalars"
            )
        if hindrance := self._hindrance():
            raise PublishRefused(f"nothing was published: {hindrance}")
        if scalars:
            _check_scalars(looked.agent)
        agent, mirror = self._introduce()
        shared = mirror.agent.scalars() if scalars else None
        message = mirror.agent.message()
        assert agent.identity is not None
        study, was_out = agent.identity.study, self._is_out(message)
        was_withdrawn = self.ledger.was_withdrawn(self.exchange, message)
        if not self.ledger.publish(self.exchange, message, study=study):
            raise PublishRefused(self._not_taken(message, was_withdrawn))
        self._withdraw_former(agent, mirror.agent.federation)
        are_new = shared is not None and not self._is_shared(shared)
        if shared is not None and are_new:
            self.ledger.share(self.exchange, shared, study=study)
        return Published(
            message=message,
            is_new=not was_out,
            scalars=shared,
            are_scalars_new=are_new,
            trials=len(self._scored),
        )

    def _agent(self, exchange: Exchange | None, name: str | None) -> StudyAgent:
        kind = "compact" if self.federation is None else self.federation.kind
        recipe = Recipe(
            federation=self.federation,
            policy=join.POLICIES[kind](),
            settings=self._settings,
            seed=None,
            name=name,
            clip=False,
            signed=self._signed,
        )
        return StudyAgent(self.study, recipe, None if exchange is None else self._keyring, exchange)

    def _introduce(self) -> tuple[StudyAgent, Mirror]:
        """Give the study its name and its key; return its agent, told all trials."""
        agent = self._agent(self.exchange, self.name)
        search_space = {} if self.federation is not None else agent.common_space(cached=False)
        if self.federation is None:
            agent.note_space(search_space)
        mirror = agent.follow(search_space)
        if agent.signing.hindrance:
            raise PublishRefused(f"nothing was published: {agent.signing.hindrance}")
        return agent, mirror

    def _of_scores(self, mirror: Mirror | None) -> Mirror:
        mine = f"study {self.study.study_name!r}"
        if mirror is None:
            raise PublishRefused(f"{mine} has no parameter that all trials share and fedbo can use")
        if not mirror.scores:
            raise PublishRefused(f"{mine} has no score at a point of the federation's space")
        return mirror

    def _agreed(self) -> tuple[Federation, str | None]:
        """Return the federation, also if it is that of the study's own space, and the name."""
        agent = self._agent(None, None)
        search_space = {} if self.federation is not None else agent.common_space(cached=False)
        return agent.agreed(search_space), self.name

    def _hindrance(self) -> str:
        agreed, name = self._agreed()
        return hindrance(self.study, self.exchange, agreed, name, self._signed, self.ledger)

    def _is_out(self, message: Message) -> bool:
        """Whether this very message was sent to the exchange, and not withdrawn."""
        for one in self.ledger.outstanding(self.exchange.address, message.sender):
            with contextlib.suppress(ValueError):  # a line that cannot be read is another message
                if one.message() == message:
                    return True
        return False

    def _not_taken(self, message: Message, was_withdrawn: bool) -> str:
        where = self.exchange.address
        if was_withdrawn:
            return (
                f"{where} does not take this message again, because it was withdrawn. Run another "
                "trial, and publish the message that follows"
            )
        return (
            f"{where} already has a later message under the name {message.sender!r}, or has "
            "deleted this one, and does not take it again: it was withdrawn, or its member has "
            "left or changed its key. Give this study another name with --name, or run another "
            "trial, and publish the message that follows"
        )

    def _withdraw_former(self, agent: StudyAgent, federation: Federation) -> None:
        """Withdraw what the study published under other names, or in federations that it left."""
        for left, sender, keys, study in former_messages(agent, federation):
            try:
                self.ledger.withdraw(self.exchange, left, sender, keys=keys, study=study)
            except NotOurs:
                pass  # the name belongs to another study now
            except ExchangeError as error:
                text = f"a former message of this study, of {sender!r}, was not withdrawn: {error}"
                caller.warn(text, ExchangeWarning)

    def _is_shared(self, scalars: Scalars) -> bool:
        """Whether these very scalars are the last ones that were shared."""
        lines = self.ledger.read(scalars.sender)
        sent = [one for one in lines if (one.kind, one.to) == ("scalars", self.exchange.address)]
        if not sent or sent[-1].action != "sent":
            return False
        with contextlib.suppress(ValueError):
            return sent[-1].decoded() == scalars
        return False


def named(
    study: optuna.Study | None, exchange: Exchange, federation: Federation, name: str | None
) -> str | None:
    """Return the name of a study at an exchange; None if it is not drawn yet.

    Args:
        study: The study; None if there is none yet.
        exchange: The exchange.
        federation: The federation of the study.
        name: The name that was given, if any.
    """
    known = None if study is None else record.identity(study)
    name = known.name if name is None and known is not None else name
    return None if name is None else standing_at(exchange, federation).name(name)


def hindrance(
    study: optuna.Study,
    exchange: Exchange,
    federation: Federation,
    name: str | None,
    signed: bool | None,
    ledger: Ledger,
) -> str:
    """Say why a message of a study would not be published; empty if it would be.

    Nothing is stored, and nothing leaves.

    Args:
        study: The study.
        exchange: Where it would be published.
        federation: The federation of the study.
        name: The name that was given, if any.
        signed: Whether to sign, as for `FederatedSampler`.
        ledger: What was sent by which study.
    """
    known, standing = record.identity(study), standing_at(exchange, federation)
    if standing.hindrance:
        return standing.hindrance
    if signed and standing.key == "":
        return standing.unsigned
    shown = named(study, exchange, federation, name) or standing.member or ""
    if reason := standing.fits(shown).hindrance:
        return reason
    signed, key = standing.signs(signed, "" if known is None else known.key)
    keyring = exchange.keyring or Keyring.user()
    if reason := signing.foresee(signed, key, shown, federation, keyring):
        return reason
    if known is None:
        return ""
    is_taken = has_namesake(exchange, ledger, federation, shown, key, known.study)
    return namesake(shown) if is_taken else ""


def _check(
    study: optuna.Study, federation: Federation | None, scored: Sequence[FrozenTrial]
) -> None:
    """Refuse a study that has no message for this federation."""
    mine = f"study {study.study_name!r}"
    if len(study.directions) > 1:
        raise PublishRefused(
            f"{mine} has {len(study.directions)} objectives, and a message is about one"
        )
    if not scored:
        raise PublishRefused(f"{mine} has no finished trial, so it has nothing to tell: run one")
    if federation is None:
        known = record.identity(study)
        if known is not None and known.federation:
            raise PublishRefused(
                f"{mine} takes part in the federation {known.federation}: give its file with "
                "--federation"
            )
        return
    try:
        join.check(study, federation)
    except join.JoinRefused as error:
        raise PublishRefused(str(error)) from None
    if faults := mismatches(scored, federation):
        raise PublishRefused(
            "\n  ".join([f"{mine} does not have the parameters of the federation:", *faults])
        )


def _check_scalars(agent: Agent) -> None:
    try:
        agent.scalars()
    except ValueError as error:
        raise PublishRefused(f"nothing was published: {error}, or leave out --scalars") from None


def mismatches(scored: Sequence[FrozenTrial], federation: Federation) -> list[str]:
    """Return how the parameters of trials differ from a federation's, one line for each.

    A parameter fits if any trial has it as the federation does, or in a narrower range: the agent
    leaves other trials out.

    Args:
        scored: The trials.
        federation: The federation.
    """
    lines, theirs = [], federation.space.parameters
    own = sorted({name for trial in scored for name in trial.params if name not in theirs})
    near = misspellings([n for n in theirs if all(n not in t.params for t in scored)], own)
    for name, parameter in theirs.items():
        given = [trial.distributions[name] for trial in scored if name in trial.distributions]
        faults = [mismatch(one, parameter) for one in given]
        if not given:
            hint = f"; it has {near[name]!r} (misspelt?)" if name in near else ""
            lines.append(f"parameter {name!r} is not in the study{hint}")
        elif all(faults):
            lines.append(f"parameter {name!r}: {faults[-1]}")
    return lines
