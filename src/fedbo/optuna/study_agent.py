"""The agent of one study: how a sampler makes it, and how it follows the study."""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import optuna
from optuna.search_space import IntersectionSearchSpace
from optuna.trial import FrozenTrial, TrialState

from fedbo.agent import Agent
from fedbo.agent.settings import Settings
from fedbo.exchange import Exchange
from fedbo.federation import Federation, FederationMismatch
from fedbo.identity import KeyPair, Keyring, is_installed
from fedbo.message import Kind, Message
from fedbo.message.signed import member, parse_key
from fedbo.optuna import private, record
from fedbo.optuna.distributions import (
    SearchSpace,
    Translation,
    describe,
    difference,
    parameter_of,
)
from fedbo.optuna.mirror import Mirror, StudyChanged, Unlocated, locate
from fedbo.optuna.notices import Notices, differences, misspellings, quoted
from fedbo.optuna.signing import Signing, give_up, prepare, reception
from fedbo.optuna.standing import Standing, standing_at
from fedbo.policy import Policy
from fedbo.space import Direction, Float, Parameter, Space

SCORED = (TrialState.COMPLETE, TrialState.PRUNED)  # the states of trials that have scores


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The arguments of a `FederatedSampler` that its agents are made with."""

    federation: Federation | None
    policy: Policy
    settings: Settings | None
    seed: int | None
    name: str | None
    clip: bool
    signed: bool | None = None

    def __post_init__(self) -> None:
        """Refuse wrong arguments here, not in the first trial."""
        if self.clip and (self.federation is None or self.federation.space.points is not None):
            raise ValueError(
                "clip=True is for a site whose range is inside that of its federation: it needs a "
                "federation, and one without listed points"
            )
        if self.seed is not None and self.settings and self.settings.local_epsilon is not None:
            raise ValueError(
                f"seed is {self.seed}, but the vote of local_epsilon must be random: whoever "
                "guesses the seed could read it. Leave out the seed"
            )
        if self.signed and not is_installed():
            raise ValueError(
                "signed is True, but the package cryptography is not installed: pip install "
                "'fedbo[identity]'"
            )
        federation = self.federation or Federation({"x": Float(0, 1)}, kind=self._kind)
        Agent(federation, self.policy, name=self.name, seed=self.seed, settings=self.settings)

    @property
    def _kind(self) -> Kind:
        """The kind of message that the policy can use."""
        kinds: tuple[Kind, ...] = getattr(self.policy, "kinds", ("weights",))
        return kinds[0]

    def mirror(
        self,
        study: optuna.Study,
        search_space: SearchSpace,
        identity: record.Identity,
        within: dict[str, Parameter],
        keys: KeyPair | None = None,
        keyring: Keyring | None = None,
    ) -> Mirror:
        """Make a new agent, whose queries stay in the narrower ranges ``within``.

        Without a federation, one is made from the search space.
        """
        words = Translation(search_space)
        federation = self.agreed(study, words)
        # A study has one secret for all its federations, and different noise in each of them. A
        # randomised vote must not be drawn again in another epoch: votes could be averaged.
        fingerprint = federation.fingerprint
        place = fingerprint if federation.privacy is None else fingerprint.lasting.encode()
        secret = identity.entropy.encode() + place
        agent = Agent(
            federation,
            self.policy,
            name=identity.name,
            seed=int.from_bytes(hashlib.sha256(secret).digest()[:16]),
            settings=self.settings,
            within=within,
            keys=keys,
            keyring=keyring,
        )
        return Mirror(agent, words)

    def agreed(
        self, study: optuna.Study, words: Translation, kind: Kind | None = None
    ) -> Federation:
        """Return the federation that was given, or else the one of this search space.

        Args:
            study: The study.
            words: Its search space.
            kind: What agents of the latter send; by default, what suits the policy best.
        """
        direction: Direction = "maximize" if study.direction.name == "MAXIMIZE" else "minimize"
        if self.federation is None:
            space = Space(words.parameters, direction=direction)
            return Federation(space, kind=self._kind if kind is None else kind)
        agreed = self.federation.space.direction
        if agreed != direction:
            raise FederationMismatch(
                f"the study has direction {direction}, but its federation has {agreed}: create a "
                f"study with direction={agreed!r}, and change the sign of the objective if "
                "necessary. A stored study keeps its direction, so give the new one another name"
            )
        return self.federation

    def new_identity(self, standing: Standing) -> record.Identity:
        """Return the identity of an agent for a new study."""
        entropy = secrets.token_hex(16)
        if self.seed is not None:
            text = f"{int(self.seed)} {self.name or ''}"
            entropy = hashlib.sha256(text.encode()).hexdigest()[:32]
        return record.Identity(
            name=standing.name(record.draw_name() if self.name is None else self.name),
            entropy=entropy,
            federation="" if self.federation is None else str(self.federation.fingerprint),
            epoch=0 if self.federation is None else self.federation.epoch,
        )

    def narrower(self, ranges: SearchSpace) -> dict[str, Parameter]:
        """Return the ranges that are narrower than the federation's, if clipping is allowed."""
        if self.federation is None or not self.clip:
            return {}
        theirs = self.federation.space.parameters
        return {
            name: parameter_of(name, given)
            for name, given in ranges.items()
            if name in theirs
            and not given.single()
            and difference(name, given, theirs[name]) is not None
            and difference(name, given, theirs[name], clip=True) is None
        }


class StudyAgent:
    """The agent of one study, and what is known about that study. One thread at a time uses it."""

    def __init__(
        self,
        study: optuna.Study,
        recipe: Recipe,
        keyring: Keyring | None = None,
        exchange: Exchange | None = None,
    ) -> None:
        """Args: ``keyring`` is that of the ``exchange``, or None if there is no exchange."""
        self.study = study
        self.notices = Notices()
        self.standing = Standing()  # at the exchange, as it was known last
        self.signing = Signing()
        self.replaced: list[KeyPair | None] = []  # the keys before these; None if there were none
        self.mirror: Mirror | None = None  # until the first query, or the first look
        self.queries: dict[int, dict[str, Any]] = {}  # by the numbers of the running trials
        self.ranges: SearchSpace = {}  # that the objective gave for the federation's parameters
        self.mismatch = ""  # how the objective differs from a federation that learns nothing
        self.left: list[Federation] = []  # federations that the study took part in before
        self._recipe = recipe
        self._noted: SearchSpace | None = None  # the space that the study is known to have
        self._intersection = IntersectionSearchSpace()
        self._shared: SearchSpace = {}  # the parameters that all complete trials share
        self._tuned: SearchSpace = {}  # those of them that fedbo can tune
        self._identity: record.Identity | None = None
        self._keyring, self._exchange = keyring, exchange
        self._made_from: tuple[SearchSpace, record.Identity, dict[str, Parameter], str] | None
        self._made_from = None
        self._suggested: set[str] = set()  # the parameters of trials that ended in this process

    @property
    def agent(self) -> Agent | None:
        """The agent, told everything that has finished; None before the study's first query."""
        if self.mirror is None:
            mirror = self.look() if record.identity(self.study) is not None else None
            return None if mirror is None else mirror.agent
        with contextlib.suppress(StudyChanged):  # the next query builds it anew
            self.mirror.follow(private.get_trials(self.study))
        return self.mirror.agent

    def common_space(self, *, cached: bool = True) -> SearchSpace:
        """Return the parameters that all complete trials share and that fedbo can tune."""
        shared = self._intersection.calculate(self.study, use_cache=cached)
        if shared != self._shared:
            words = Translation({n: given for n, given in shared.items() if not given.single()})
            for reason in words.refused:
                self.notices.warn("cannot tune", reason=reason)
            self._shared, self._tuned = shared, {name: shared[name] for name in words.parameters}
        return dict(self._tuned)

    def note_space(self, search_space: SearchSpace) -> None:
        """Store the space that all trials share, and warn if it was larger before.

        A study without a federation file takes part in the federation of this space. So it leaves
        one federation for another when a trial has another range, or lacks a parameter.
        """
        if self._keyring is None or search_space == self._noted:
            return
        spaces = record.spaces(self.study)
        former = min(spaces, key=len, default={})
        if search_space not in spaces and (search_space or spaces):
            record.add_space(self.study, search_space)
        self._noted = search_space
        # A smaller space is one that another worker has already gone on to.
        larger = [one for one in spaces if len(one) > len(search_space)]
        self.left = [self.agreed(one) for one in larger]
        lost = [name for name in former if name not in search_space]
        if lost:
            self._identity = self._identity or self._introduce(former)
            reason = self._why_left(lost, former, search_space)
            self.notices.warn("left federation", reason=reason)
        if not search_space:
            self.mirror = None  # until then, the agent of the former federation would go on

    def _why_left(self, lost: list[str], former: SearchSpace, search_space: SearchSpace) -> str:
        """Say why the study leaves its federation, and what to do."""
        complete = [
            trial for trial in private.get_trials(self.study) if trial.state is TrialState.COMPLETE
        ]
        changes = []
        for name in lost:
            change = f"parameter {name!r} was {describe(former[name])}"
            for trial in complete:
                here = trial.distributions.get(name)
                if here != former[name]:
                    now = "does not suggest it" if here is None else f"has {describe(here)}"
                    change += f", but trial {trial.number} {now}"
                    break
            changes.append(change)
        left = str(self.agreed(former).fingerprint)[:8]
        now = "takes part in no federation, and neither sends nor receives messages"
        if search_space:
            joined = str(self.agreed(search_space).fingerprint)[:8]
            now = f"takes part in another federation, {joined} instead of {left}, with other peers"
        return (
            f"{'; '.join(changes)}. Without a federation file, a study shares the parameters that "
            f"are the same in all its trials. So it now {now}. Its message in the former "
            f"federation, {left}, is withdrawn. To take part in that one again, restore the "
            "former ranges and start another study: this one keeps the trial that differs. This "
            "warning is given once"
        )

    def follow(
        self, search_space: SearchSpace, asking: int | None = None, *, cached: bool = False
    ) -> Mirror:
        """Bring the agent up to date with the study, except for the trial that is ``asking``.

        ``search_space`` is what is tuned if there is no federation. If ``cached``, trials may be as
        old as the beginning of the running trial.
        """
        trials = private.get_trials(self.study, cached=cached)
        if self._identity is None:
            self._identity = self._introduce(search_space)
        return self._followed(search_space, self._identity, trials, asking)

    def introduce(self) -> None:
        """Give the study its name and its key before the first query, if it has a federation."""
        if self._identity is None and self._recipe.federation is not None:
            self._identity = self._introduce({})

    def look(self) -> Mirror | None:
        """Return the agent with all that the study knows, without changing the study.

        None if there is no federation, and no parameter that all complete trials share.
        """
        is_free = self._recipe.federation is None
        search_space = self.common_space(cached=False) if is_free else {}
        if is_free and not search_space:
            return None
        trials = private.get_trials(self.study)
        known = self._identity or record.identity(self.study)
        if self._identity is None:
            self.standing = self._find_standing(search_space)
        if known is not None:
            name = self._choose_name(known)
            if self._identity is None and name != known.name:
                known = msgspec.structs.replace(known, name=name)
            elif self._identity is None and known.key and self._keyring is not None:
                self.signing = self._prepare(known, search_space)
            return self._followed(search_space, known, trials)
        new, within = self._new_identity(), self._narrower(trials)
        mirror = self._recipe.mirror(self.study, search_space, new, within)
        mirror.follow(trials)
        return mirror

    def _narrower(self, trials: Sequence[FrozenTrial]) -> dict[str, Parameter]:
        """Return the narrower ranges of the objective: in this process, or in the last trial."""
        last = next((trial.distributions for trial in reversed(trials) if trial.params), {})
        return self._recipe.narrower(last | self.ranges)

    def _followed(
        self,
        search_space: SearchSpace,
        identity: record.Identity,
        trials: Sequence[FrozenTrial],
        asking: int | None = None,
    ) -> Mirror:
        """Tell the agent of these trials. It is built anew if it is not made from the same."""
        made_from = search_space, identity, self._narrower(trials), self.signing.key
        mirror = self.mirror if made_from == self._made_from else None
        if mirror is not None:
            try:
                mirror.follow(trials, asking)
            except StudyChanged:
                mirror = None
        if mirror is None:
            keys = None if self.signing.hindrance else self.signing.keys
            mirror = self._recipe.mirror(self.study, *made_from[:3], keys, self._keyring)
            mirror.follow(trials, asking)
            self.mirror, self._made_from = mirror, made_from
        if mirror.useless is not None:
            self._warn_if_useless(mirror.useless)
        return mirror

    def _introduce(self, search_space: SearchSpace) -> record.Identity:
        """Store an identity in the study unless it has one, and rename it if a name is given."""
        self.standing = self._find_standing(search_space)
        is_new = record.identity(self.study) is None
        new = self._new_identity() if is_new else self._recipe.new_identity(self.standing)
        if is_new and self._keyring is not None and not self.standing.hindrance:
            new = msgspec.structs.replace(new, key=self._prepare(new, search_space).key)
        known = record.introduce(self.study, new)
        name = self._choose_name(known)
        if name != known.name:
            if name != self.standing.name(known.name):
                self._give_up(known, name, search_space)
            known = record.rename(self.study, name)
        return self._sign(known, search_space)

    def _new_identity(self) -> record.Identity:
        """Return an identity for a new study, whose name fits the exchange if it can."""
        new = self._recipe.new_identity(self.standing)
        self.standing = self.standing.fits(new.name)
        return self._recipe.new_identity(self.standing) if self.standing.hindrance else new

    def _choose_name(self, known: record.Identity) -> str:
        """Return the name that the study should have; the one it has if it cannot take part."""
        name = self.standing.name(self._recipe.name or known.name)
        self.standing = self.standing.fits(name)
        return known.name if self.standing.hindrance else name

    def _give_up(self, known: record.Identity, name: str, search_space: SearchSpace) -> None:
        """Say that the study gets another name, and let another site have the old one."""
        more = ""
        if self._keyring is not None:
            more = ", and its message under the old name is withdrawn"
        self.notices.warn("renamed", known=known.name, given=name, more=more)
        if self._keyring is not None and member(name) != member(known.name):
            give_up(known.name, known.key, self.agreed(search_space), self._keyring)

    def _sign(self, known: record.Identity, search_space: SearchSpace) -> record.Identity:
        """Find the key that signs the study's messages; store it unless the study has one."""
        if self._keyring is None:
            return known
        if self.standing.hindrance:
            self.signing = Signing(hindrance=self.standing.hindrance)
            self.notices.warn("alone", reason=self.standing.hindrance)
            return known
        self.signing = self._prepare(known, search_space)
        if self.signing.remark:
            self.notices.warn("about signatures", remark=self.signing.remark)
        if self.signing.hindrance:
            self.warn_of_silence("nothing published", self.signing.hindrance)
        may_change = self.signing.keys is not None or self.standing.key == ""
        if may_change and self.signing.key != known.key:
            self.replaced = [KeyPair.find(parse_key(known.key)) if known.key else None]
            known = record.set_key(self.study, self.signing.key)
        return known

    def _prepare(self, known: record.Identity, search_space: SearchSpace) -> Signing:
        assert self._keyring is not None
        if self._recipe.signed and self.standing.key == "":
            return Signing(hindrance=self.standing.unsigned)
        return prepare(
            *self.standing.signs(self._recipe.signed, known.key),
            known.name,
            self.agreed(search_space),
            self._keyring,
        )

    def _find_standing(self, search_space: SearchSpace) -> Standing:
        if self._exchange is None:
            return Standing()
        return standing_at(self._exchange, self.agreed(search_space))

    def agreed(self, search_space: SearchSpace) -> Federation:
        """Return the federation that was given, or else the one of this search space."""
        return self._recipe.agreed(self.study, Translation(search_space))

    def warn_of_silence(self, notice: str, reason: str) -> None:
        """Warn that no message of the study is published, and why."""
        self.notices.warn(notice, reason=reason, still=reception(self._recipe.federation))

    def end(self, trial: FrozenTrial, state: TrialState) -> None:
        """Note that a trial has ended, and warn if the agent cannot learn from it."""
        self.queries.pop(trial.number, None)
        self._suggested.update(trial.params)
        if self.mirror is not None:
            self._suggested |= self.mirror.names
        if state in SCORED:
            self._warn_if_useless(trial)

    def update(self) -> Mirror:
        """Bring the agent up to date with the study, to make a message."""
        assert self._made_from is not None
        search_space = self._made_from[0]
        known = record.identity(self.study)  # another worker may have changed it
        is_same = self._find_standing(search_space) == self.standing
        if known is None or self._identity is None or not is_same:
            known = self._introduce(search_space)
        elif known != self._identity or self.signing.hindrance:
            known = self._sign(known, search_space)
        self._identity = known
        return self.follow(search_space)

    def mirror_of(self, trials: Sequence[FrozenTrial]) -> Mirror:
        """Return the agent that was told these trials and no others, after `update`."""
        assert self.mirror is not None
        assert self._made_from is not None
        if self.mirror.told == {trial.number for trial in trials}:
            return self.mirror
        keys = None if self.signing.hindrance else self.signing.keys
        mirror = self._recipe.mirror(self.study, *self._made_from[:3], keys, self._keyring)
        mirror.names = set(self.mirror.names)  # as other trials suggested them
        mirror.follow(trials)
        return mirror

    def twin(self) -> Mirror | None:
        """Return another agent like this one, which was told nothing yet; None if there is none."""
        if self._made_from is None or self.mirror is None:
            return None
        return self._recipe.mirror(self.study, *self._made_from[:3])

    @property
    def federation(self) -> Federation | None:
        """The federation that was given; None if the study makes its own."""
        return self._recipe.federation

    @property
    def identity(self) -> record.Identity | None:
        """The identity of the agent, as it was known for the last query or message."""
        return self._identity

    def preview(self) -> Message | None:
        """Return the message that would be published now, without changing the study."""
        mirror = self.look()
        return mirror.agent.message() if mirror is not None and mirror.scores else None

    def _warn_if_useless(self, trial: FrozenTrial) -> None:
        """Warn if the agent can learn nothing from a trial with a value, or only a part."""
        if self._recipe.federation is None:
            return  # its space is what trials share: it is normal that some have more
        space = self._recipe.federation.space
        missing = [name for name in space.names if name not in trial.params]
        if missing and self.mirror is None:
            for other in private.get_trials(self.study):
                self._suggested.update(other.params)
        try:
            locate(trial, space, Translation({}), self._suggested)
        except Unlocated as problem:
            self._warn_of_mismatch(trial, problem)
        except ValueError as problem:
            self.notices.warn("cannot learn", number=trial.number, reason=problem)
        else:
            if missing and not self.notices.has_given("counts later"):
                self._warn_of_missing(trial, missing)

    def _warn_of_mismatch(self, trial: FrozenTrial, problem: Unlocated) -> None:
        """Warn that a trial lacks parameters of the federation that no trial has suggested."""
        others = self._own_parameters(trial)
        near = misspellings(problem.missing, others)
        self.mismatch = differences(problem.missing, others)
        if near:
            has_scores = self.mirror is not None and self.mirror.scores > 0
            notice = "misspelt in some trials" if has_scores else "misspelt"
        else:
            notice = "does not match" if problem.is_final else "counts later"
        self._warn_of_names(notice, trial, problem.missing)

    def _warn_of_missing(self, trial: FrozenTrial, missing: Sequence[str]) -> None:
        """Warn that a trial counts where it was asked for, which may not be where it ran."""
        is_misspelt = bool(misspellings(missing, self._own_parameters(trial)))
        notice = "misspelt later" if is_misspelt else "counts where asked"
        self._warn_of_names(notice, trial, missing)

    def _warn_of_names(self, notice: str, trial: FrozenTrial, missing: Sequence[str]) -> None:
        others = self._own_parameters(trial)
        near = [*misspellings(missing, others).values()]
        self.notices.warn(
            notice,
            number=trial.number,
            differences=differences(missing, others),
            names=quoted(missing),
            near=quoted(near) if near else "",
            it="it" if len(near) == 1 else "them",
        )

    def _own_parameters(self, trial: FrozenTrial) -> list[str]:
        """Return the parameters of a trial that the federation does not have."""
        assert self._recipe.federation is not None
        theirs = self._recipe.federation.space.parameters
        return [name for name in trial.params if name not in theirs]
