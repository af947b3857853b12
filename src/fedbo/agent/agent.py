"""An agent: a party that tunes its own black box, helped by the messages of its peers.

docs/architecture.md describes the paths of a query and of a message.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from fedbo.agent import savefile
from fedbo.agent.outbox import Outbox, Recorder
from fedbo.agent.settings import InitialPoints, Settings, Stream
from fedbo.agent.trial import Account, History, Trial
from fedbo.caller import warn
from fedbo.errors import FileRefused, KeyRefused, MessageRefused
from fedbo.federation.federation import Federation
from fedbo.federation.shared import Shared
from fedbo.message.inbox import CHANCE_LIMIT, inbox_for
from fedbo.message.message import MOST_PEERS, Heard, Message
from fedbo.message.release import Release, draw_names
from fedbo.message.signed import MOST_AGENTS, check_name, member, parse_key
from fedbo.model.kernel import Array, one_thread
from fedbo.model.surrogate import Surrogate
from fedbo.policy.base import Policy, checked_query
from fedbo.policy.feasibility import Feasibility
from fedbo.policy.pool import TipsThenPool
from fedbo.policy.target import Origin, Target
from fedbo.privacy.release import held_draws
from fedbo.space.axis import Parameter, Value
from fedbo.space.space import Part, extended
from fedbo.trust.border import Trusted, open_all
from fedbo.trust.border import open as open_message
from fedbo.trust.keyring import Keyring
from fedbo.trust.keys import KeyPair

if TYPE_CHECKING:
    from fedbo.insight.explain import Explanation

Wire = Trusted | Heard | bytes | bytearray


class Agent:
    """A party that asks for queries, tells their scores, and exchanges messages.

    The same seed and the same scores give the same queries, also across `save` and `load`.

    Args:
        federation: What all agents agree on.
        policy: How the next query is chosen; `TipsThenPool` by default.
        name: What peers know the agent by; random by default.
        seed: An int of 0 or more. Leave it out if messages must stay private: whoever knows the
            seed can remove the noise from them.
        settings: How the agent starts and models its objective.
        initial: Points to start with instead of a design of ``settings.n_initial`` points. An agent
            that holds messages tries the tips of its peers first, and may then need fewer points.
        within: Narrower ranges than the federation's, by parameter; queries stay inside them.
        own: Parameters that only this agent has, by name. They are tuned together with the
            federation's; messages speak of the federation's only.
        keys: The key pair that signs messages. Without one (default), messages are not signed, and
            only agents of the same program take them.
        keyring: Which keys of peers are trusted; by default, the first key seen for each name.
        ledger: A log that records every message before `message` returns it; none by default.

    >>> from fedbo import Agent, Federation, Float
    >>> agent = Agent(Federation({"x": Float(0, 1)}), seed=0)
    >>> for _ in range(10):
    ...     trial = agent.ask()
    ...     trial = agent.tell(trial, -((trial.params["x"] - 0.3) ** 2))
    >>> abs(agent.best.params["x"] - 0.3) < 0.1
    True
    """

    def __init__(
        self,
        federation: Federation,
        policy: Policy | None = None,
        *,
        name: str | None = None,
        seed: int | None = None,
        settings: Settings | None = None,
        initial: Sequence[Mapping[str, Value]] | None = None,
        within: Mapping[str, Parameter] | None = None,
        own: Mapping[str, Parameter] | None = None,
        keys: KeyPair | None = None,
        keyring: Keyring | None = None,
        ledger: Recorder | None = None,
    ) -> None:
        self.federation, self.shared = federation, Shared.of(federation)
        self.policy = TipsThenPool() if policy is None else policy
        self.name = f"agent-{secrets.token_hex(4)}" if name is None else name
        _check_agent(federation, self.policy, self.name, seed)
        self.settings = Settings() if settings is None else settings
        self.keyring = Keyring() if keyring is None else keyring
        self.ledger = ledger
        self.signer = "" if keys is None else str(keys)  # the public key, as text
        if keys is not None:
            fault = self.keyring.claim(self.name, keys.public, federation)
            if fault is not None:
                raise KeyRefused(f"agent {self.name!r} cannot sign its messages: {fault}")
        #: All parameters that are tuned here: the federation's, then the agent's own.
        self.space = federation.space if not own else extended(federation.space, own)
        space, D = self.space, self.space.dimensions
        self._entropy: Any = np.random.SeedSequence(None if seed is None else int(seed)).entropy
        self._rng = np.random.default_rng(self._entropy)
        self._space = Part(space, within) if within else space
        self._history = History(self.name, space)
        self._surrogate = self.settings.model(D)
        self._constraint_models: list[Surrogate] = []
        points = None if initial is None else [space.encode(params) for params in initial]
        self._initial = InitialPoints(
            self._space, self.settings, self._entropy, self._history, points
        )
        self._outbox = Outbox(self.name, federation, self.settings, self._history, self._entropy)
        self._outbox.keys = keys
        M, known = self.shared.coordinates, federation.space.dimensions
        self.inbox = inbox_for(federation.kind, M, self._entropy, known)
        self._held: dict[str, bytes] = {}  # the keys of the peers whose signed messages are held
        self._is_full = False  # and the warning about that was given
        self._changes = -1  # of the keyring, when it was last looked at
        self.account = Account()
        #: The number of each trial, by its number in the study that the agent belongs to, if any.
        self.study_numbers: Mapping[int, int] | None = None

    def __repr__(self) -> str:
        trials, messages = len(self.trials), len(self.inbox)
        return f"Agent({self.name!r}, {self.policy}, {trials} trials, {messages} messages)"

    @property
    def trials(self) -> list[Trial]:
        """All trials, by number."""
        return self._history.trials

    @property
    def best(self) -> Trial | None:
        """The feasible trial with the best score in the space's direction; None before any."""
        order = [number for number in self._history.order if self.trials[number].is_feasible]
        return self.trials[order[int(np.argmax(self._history.y(order)))]].copy() if order else None

    @property
    def starting(self) -> bool:
        """Whether the agent has fewer trials than it wants initial points."""
        return self._initial.are_due

    # Queries and scores

    @overload
    def ask(self, n: None = None, *, key: int | None = None) -> Trial: ...
    @overload
    def ask(self, n: int) -> list[Trial]: ...
    def ask(self, n: int | None = None, *, key: int | None = None) -> Trial | list[Trial]:
        """Return the next trial to run, or the next n; more may be asked for before one is told.

        Args:
            n: How many trials to return as a list; None (the default) returns one trial.
            key: Seeds the random numbers of this query, and is the index of an initial point.
                Workers that share a study ask with the number of their trial, so that no two of
                them get the same query.

        >>> from fedbo import Agent, Federation, Float
        >>> agent = Agent(Federation({"x": Float(0, 1)}), seed=0)
        >>> [trial.number for trial in agent.ask(4)]
        [0, 1, 2, 3]
        """
        if n is None:
            return self._ask(key)
        if n < 1 or key is not None:
            raise ValueError(f"n is {n} and key is {key}, expected n of 1 or more, or one key")
        return [self._ask(None) for _ in range(n)]

    def tell(
        self,
        trial: Trial | Mapping[str, Value],
        score: float | None,
        constraints: Sequence[float] = (),
    ) -> Trial:
        """Report the score of a trial, once; return the trial as it is now.

        Args:
            trial: A trial from `ask`, or the params of a trial that was never asked for.
            score: The score in the objective's units. None means that the trial failed, which
                says nothing about its point; if the point itself is to blame, tell a bad score.
            constraints: Values of constraints, always as many and in the same order. A trial is
                feasible if none of them is above 0. Only feasible trials go into messages, and
                constraints never leave the agent.
        """
        recorded = self._history.tell(trial, score, constraints)
        if recorded.score is not None:
            self._outbox.message = None
        if isinstance(trial, Trial):
            trial.state, trial.score = recorded.state, recorded.score
            trial.constraints = recorded.constraints
        return recorded.copy()

    def adopt(
        self, params: Mapping[str, Value], *, origin: Origin | None = None, t: int | None = None
    ) -> Trial:
        """Take over a pending trial that was begun elsewhere, such as before a restart.

        Its origin and t are those that `ask` returned there; ``"told"`` and None by default.
        """
        if t is not None and t < 1:
            raise ValueError(f"t is {t}, expected 1 or more, or None if no policy asked for it")
        return self._history.add(params, origin, t).copy()

    # Messages

    def message(self) -> Message:
        """Return what this agent hands out, of the federation's ``kind``; never a trial.

        It stays the same until the next score. Messages of successive scores have fresh noise, and
        whoever averages them comes close to the mean of the belief: hand out a message when it is
        worth it, not after every score. ``docs/reference/security.md`` says what messages reveal.
        """
        if self.signer and self._outbox.keys is None:
            raise KeyRefused(
                f"agent {self.name!r} signs its messages with {self.signer}. That private key "
                "is not on this machine, or was revoked here: import it (fedbo identity import "
                "FILE), or give it to Agent.load(path, keys=...)"
            )
        with one_thread():
            message = self._outbox.write()
        if self.ledger is not None:
            self.ledger.record(message)
        self.account.count_sent(message)
        return message

    @staticmethod
    def messages(agents: Sequence[Agent]) -> list[Message]:
        """Return the message of each agent that has something to hand out."""
        return [agent.message() for agent in agents if agent._outbox.is_ready]

    def receive(self, messages: Wire | Iterable[Wire]) -> int:
        """Take messages of peers, if all of them can be trusted.

        Messages of this agent itself are ignored, and so is a message that is held already. A
        private release is taken as 64 peers, see `fedbo.privacy.release`, and counts as one.

        Args:
            messages: One or several: what an exchange returned; bytes from outside, which are
                opened here (`fedbo.trust.open`), so they must be signed; or messages of other
                agents of this program, which need no signature.

        Returns:
            The number of messages that were taken.

        Raises:
            MessageRefused: If a message is damaged, does not fit the federation, does not come
                from the sender that it names, or is older than one of this sender that was opened
                before. Then none of them is taken.
        """
        if isinstance(messages, Wire):
            messages = [messages]
        if not isinstance(messages, Iterable):
            raise TypeError(f"messages is {messages!r}, expected messages or their bytes")
        trusted = self._opened([*messages])
        heard = [each.content for each in trusted if isinstance(each.content, Heard)]
        for message in heard:
            if isinstance(message, Message) and self.federation.privacy is not None:
                raise MessageRefused(
                    f"the message of {message.sender!r} is a contribution, which is for "
                    f"{self.federation.privacy.by!r} only: agents hear its releases"
                )
        theirs = [m for m in heard if isinstance(m, Release) or m.sender != self.name]
        self._forget_untrusted()
        if self.ledger is not None:
            for message in theirs:
                if isinstance(message, Release):
                    self.ledger.receive(message)
        chances = [_chance(self.policy, message.sender) for message in theirs]
        with one_thread():
            return sum(map(self._take, theirs, chances))

    def _opened(self, messages: Sequence[Wire]) -> list[Trusted]:
        """Return messages as trusted: all, or none."""
        for i, message in enumerate(messages):
            if not isinstance(message, Wire):
                raise TypeError(
                    f"messages[{i}] is {message!r}, expected a Message, a Release, or the bytes of "
                    "one"
                )
            if isinstance(message, Trusted) and (
                fault := self.federation.fingerprint.mismatch(message.content.fingerprint)
            ):
                raise MessageRefused(f"messages[{i}] is of another federation: {fault}")
        local = [m for m in messages if isinstance(m, Heard) and not m.key]
        outside = [
            message
            for message in messages
            if isinstance(message, bytes | bytearray)
            or (isinstance(message, Heard) and message.key)
        ]
        return [
            *(m for m in messages if isinstance(m, Trusted)),
            *(open_message(self.federation, None, m) for m in local),
            *open_all(self.federation, self.keyring, outside),
        ]

    def forget(self, senders: Iterable[str]) -> int:
        """Forget the messages of these senders, as if they had never arrived; return how many.

        Later messages of them are taken again. What was queried until then stays as it is.
        Unknown senders are ignored, and a release counts as its 64 draws.

        >>> from fedbo import Agent, Federation, Float
        >>> federation = Federation({"x": Float(0, 1)})
        >>> peer = Agent(federation, name="site-a", seed=0)
        >>> trial = peer.tell({"x": 0.3}, 1.0)
        >>> agent = Agent(federation, seed=1)
        >>> agent.receive(peer.message()), agent.forget(["site-a", "site-b"]), len(agent.inbox)
        (1, 1, 0)
        """
        named = list(senders)
        gone = named + [name for sender in named for name in draw_names(sender)]
        for sender in gone:
            self._held.pop(sender, None)
        return self.inbox.remove(gone)

    def _take(self, message: Heard, chance: float) -> bool:
        """Hold a message, or the draws of a release, in place of an earlier one."""
        if isinstance(message, Release):
            held = held_draws(self.shared, message)
        else:
            held = [self.shared.held(message)]
        first = held[0].sender
        if first not in self.inbox and (why := self._why_no_room_for(message, len(held))):
            if not self._is_full:
                self._is_full = True
                warn(
                    f"agent {self.name!r} does not take the message of {message.sender!r}: {why}. "
                    "This warning is given once"
                )
            return False
        if first in self.inbox and message.key != self._held.get(first, b""):
            self.forget([message.sender])  # under another key, whatever its sequence is
        if not all([self.inbox.hold(each, chance) for each in held]):
            return False
        self.account.received.count(message)
        if message.key:
            self._held |= dict.fromkeys((each.sender for each in held), message.key)
        return True

    def _forget_untrusted(self) -> None:
        """Forget messages whose keys were revoked, replaced or taken off the list of members."""
        if (changes := self.keyring.changes()) != self._changes:
            self._changes = changes
            self.forget(
                [
                    sender
                    for sender, key in self._held.items()
                    if not self.keyring.is_trusted(self.federation, sender, key)
                ]
            )

    def _why_no_room_for(self, message: Heard, size: int) -> str:
        """Say which limit keeps out a message of a new sender; empty if none does."""
        sender = message.sender
        if (
            "/" in sender and self.inbox.agents[member(sender)] >= MOST_AGENTS
        ):  # it could invent any
            return f"it holds those of {MOST_AGENTS} agents of {member(sender)!r}, and no more"
        if len(self.inbox) + size <= MOST_PEERS or member(sender) in self.federation.members:
            return ""
        return (
            f"it holds those of {len(self.inbox):,} peers, and no more. If peers may be invented, "
            "list the members' keys in the federation file"
        )

    def set_members(self, federation: Federation) -> None:
        """Take over the list of members' keys of the same federation.

        Raises:
            FederationMismatch: If anything else differs.
        """
        self.federation.require_same(federation)
        self.federation = federation
        self._changes = -1

    # Files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the agent to a file, completely or not at all."""
        points, is_own = self._initial.points, type(self.settings) is Settings
        shared = self.federation.space.parameters
        saved = savefile.Saved(
            federation=self.federation.to_toml(),
            policy=savefile.writable_policy(self.policy),
            name=self.name,
            settings=self.settings if is_own else None,
            entropy=str(self._entropy),
            rng=json.dumps(self._rng.bit_generator.state),
            trials=self.trials,
            order=self._history.order,
            initial=None if points is None else [*map(self.space.decode, points)],
            within=self._space.parameters if isinstance(self._space, Part) else {},
            own={name: p for name, p in self.space.parameters.items() if name not in shared},
            surrogate=self._surrogate.state,
            constraint_models=[model.state for model in self._constraint_models],
            account=self.account,
            inbox=self.inbox.state(),
            signer=self.signer,
            held=self._held,
            known=self.keyring.known(self.federation),
            revoked=self.keyring.revoked(),
        )
        savefile.write(path, saved)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        policy: Policy | None = None,
        settings: Settings | None = None,
        *,
        keys: KeyPair | None = None,
        keyring: Keyring | None = None,
        ledger: Recorder | None = None,
    ) -> Agent:
        """Return the agent that `save` wrote; it continues as if it had never stopped.

        A file holds fedbo's own policies and `Settings` only: give any others again. It never holds
        a private key.

        Args:
            path: The file. One that is damaged or foreign is refused, and left as it is.
            policy: The policy, if you wrote it or it contains a function.
            settings: The settings, if they are of a subclass, such as the paper's.
            keys: The key pair that the agent signs with; by default it is looked up in the user's
                state folder.
            keyring: Which keys are trusted; by default those that the agent knew.
            ledger: As for a new agent.

        Raises:
            FileRefused: If the file cannot be used; the text says why.
        """
        saved, federation = savefile.read(path)
        policy = saved.policy if policy is None else policy
        settings = saved.settings if settings is None else settings
        missing = "policy" if policy is None else "settings" if settings is None else None
        if missing is not None:
            raise FileRefused(
                f"{os.fspath(path)} needs its agent's {missing} again, because a file holds only "
                f"fedbo's own: Agent.load(path, {missing}=...); for the paper's settings that is "
                "fedbo_paper.preset.PAPER"
            )
        keys = _keys_of(saved.signer, keys, os.fspath(path))
        with savefile.refusing(path):
            agent = cls(
                federation,
                policy,
                name=saved.name,
                seed=int(saved.entropy),
                settings=settings,
                initial=saved.initial,
                within=saved.within,
                own=saved.own,
                keys=keys,
                keyring=keyring,
                ledger=ledger,
            )
            if keyring is None:
                agent.keyring.restore(federation, saved.known, saved.revoked)
            agent._restore(saved)
        return agent

    def _restore(self, saved: savefile.Saved) -> None:
        self.signer = saved.signer or self.signer
        self._rng.bit_generator.state = json.loads(saved.rng)
        self._history.restore(saved.trials, saved.order)
        self.inbox.restore(saved.inbox)
        self._held = saved.held
        D = self.space.dimensions
        self._surrogate = self.settings.model(D, saved.surrogate)
        self._constraint_models = [
            self.settings.model(D, state) for state in saved.constraint_models
        ]
        self.account = saved.account

    # Insight

    def explain(self, draws: int = 32) -> Explanation:
        """Explain where queries came from, what each peer contributed, what collaborating saved.

        This changes no later query, and takes seconds at 50 trials: ``draws`` is the number of
        replays behind the estimate of trials saved. See `fedbo.insight.explain`.
        """
        from fedbo.insight.explain import explain

        return explain(self, draws, self.study_numbers)

    def initial_design(self, seed: int) -> list[Array]:
        """Return the initial points (D,) of an agent alone with this seed."""
        return self._initial.alone(seed)

    def stream(self, purpose: Stream, *key: int) -> np.random.Generator:
        """Return the random stream for this purpose, from its beginning; see `Stream`."""
        return purpose.generator(self._entropy, *key)

    # How a query comes about

    def _ask(self, key: int | None) -> Trial:
        rng = self._rng if key is None else self.stream(Stream.QUERY, key)
        with contextlib.suppress(OSError, FileRefused):  # a query does not fail for a keyring
            self._forget_untrusted()
        with one_thread():
            initial = self._initial.next(key)
            if initial is not None and self.starting and not self.policy.begins:
                return self._new_trial(initial, Origin("initial"))
            target = self._target(initial, rng)
            query = checked_query(self.policy, target)
            if query.origin.source in ("initial", "tip"):
                return self._new_trial(query.x, query.origin)
            tried = np.array(self._history.points)
            x = self.settings.revise(query.x, tried, self._space, rng)
            return self._new_trial(x, query.origin, target.t)

    def _new_trial(self, x: Array, origin: Origin, t: int | None = None) -> Trial:
        return self._history.add(self.space.decode(x), origin, t).copy()

    def _target(self, initial: Array | None, rng: np.random.Generator) -> Target:
        trials, X, C = self._history.trials, self._history.X(), self._history.constraints()
        feasibility = None
        if C is not None:
            new = C.shape[1] - len(self._constraint_models)
            self._constraint_models += [self.settings.model(X.shape[1]) for _ in range(new)]
            args = self._constraint_models, X, C, self.settings.scores, rng
            feasibility = Feasibility(*args)
        return Target(
            t=1 + self._history.queries(),
            space=self._space,
            X=X,
            y=self.settings.scores(self._history.y()).z,
            is_feasible=None if feasibility is None else feasibility.at_X,
            restrict=None if feasibility is None else feasibility.restrict,
            open_points=self._history.open_points(),
            initial=initial,
            starting=self.starting,
            sources=[trials[number].source for number in self._history.order],
            open_sources=[trial.source for trial in trials if trial.score is None],
            surrogate=self._surrogate,
            inbox=self.inbox,
            federation=self.federation,
            maximiser=self.settings.maximiser,
            rng=rng,
            repeats=self.settings.repeats == "allow",
        )


def _keys_of(signer: str, keys: KeyPair | None, name: str) -> KeyPair | None:
    """Return the key pair that a saved agent signs with, or None if it is not here."""
    if not signer:
        return keys
    if keys is None:
        is_usable = signer not in Keyring.user().revoked()
        return KeyPair.find(parse_key(signer)) if is_usable else None
    if str(keys) != signer:
        raise FileRefused(f"{name} has an agent that signs with {signer}, but keys is {keys}")
    return keys


def _chance(policy: Policy, sender: str) -> float:
    chance = policy.chance(sender)
    if not isinstance(chance, float | int) or not 0.0 <= chance <= CHANCE_LIMIT:
        raise ValueError(
            f"{type(policy).__name__}.chance({sender!r}) is {chance!r}, expected a number from 0 "
            f"to {CHANCE_LIMIT}"
        )
    return chance


def _check_agent(federation: Federation, policy: Policy, name: str, seed: int | None) -> None:
    if not isinstance(policy, Policy):
        raise TypeError(f"policy is {policy!r}, expected a policy such as fedbo.FTS()")
    check_name(name)
    if seed is not None and (not hasattr(seed, "__index__") or seed < 0):
        raise ValueError(f"seed is {seed!r}, expected an int of 0 or more, or None")
    if federation.kind not in policy.kinds:
        raise ValueError(
            f"{type(policy).__name__} cannot use messages of kind {federation.kind!r}; "
            f"make the federation with kind={' or '.join(map(repr, policy.kinds))}"
        )
