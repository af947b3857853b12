"""An agent: a party that tunes its own black box, helped by the messages of its peers.

The way of a query: `Agent.ask` → policy → (own posterior draw | a peer's message) → argmax → space
→ the user's objective → `Agent.tell`. The way of a message: `Agent.message` → regression over the
shared features → a draw ω → the peer's `Agent.receive`.
"""

from __future__ import annotations

import math
import os
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, get_args

import msgspec
import numpy as np

from fedbo.agent import savefile
from fedbo.agent.account import Account, Cost
from fedbo.agent.design import DESIGNS
from fedbo.agent.settings import PAPER, Settings
from fedbo.agent.streams import Stream
from fedbo.agent.trial import Trial
from fedbo.federation import Federation
from fedbo.federation.scalars import Scalars
from fedbo.message import SENDER_BYTES, Header, Message, MessageRefused
from fedbo.message.beliefs import inbox_for
from fedbo.model.argmax import MAXIMISERS
from fedbo.model.fit import Fit
from fedbo.model.gp import rows_of
from fedbo.model.kernel import Array
from fedbo.model.leave_one_out import Rows
from fedbo.model.linear import Posterior, Regression
from fedbo.model.scores import Standardised
from fedbo.model.surrogate import Surrogate
from fedbo.model.threads import one_thread
from fedbo.policy import FTS, PTS, Policy, Query, Target
from fedbo.policy.base import Source
from fedbo.policy.schedule import Power
from fedbo.space import Parameter, Part
from fedbo.space.axis import Value, to_builtin

if TYPE_CHECKING:
    from fedbo.insight.explain import Explanation

Wire = Message | bytes | bytearray

_DESIGN, _MESSAGE, _QUERY = 1, 2, 3  # streams of random numbers beside the one of the queries
_ENOUGH = 10  # scores, for scalars


class Agent:
    """A party that asks for queries, tells their scores, and exchanges messages.

    ``name`` is what peers know it by; without one it gets a random one. Everything random comes
    from ``seed``: the same seed and the same answers give the same queries. Leave it out where
    messages are to be private: who knows it knows the noise in them. ``initial`` are points to
    start with, all of them, instead of a design of ``settings.n_initial``; a policy may still
    turn to the design later. ``within`` are narrower ranges than the federation's, by parameter:
    this agent asks inside them only.

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
    ) -> None:
        self.federation = federation
        self.policy = PTS() if policy is None else policy
        self.name = f"agent-{secrets.token_hex(4)}" if name is None else name
        _check_agent(federation, self.policy, self.name, seed)
        self.settings = Settings() if settings is None else settings
        self.trials: list[Trial] = []
        space = federation.space
        self._given = None if initial is None else [space.encode(params) for params in initial]
        self._part = Part(space, within) if within else None
        self._entropy = np.random.SeedSequence(None if seed is None else int(seed)).entropy
        self._rng = np.random.default_rng(self._entropy)
        self.inbox = inbox_for(federation.kind, federation.features, self._entropy)
        self._surrogate = Surrogate(self.settings.surrogate, space.dimensions)
        self._regression = Regression(federation.phi, federation.noise_variance)
        self._message: Message | None = None
        self.account = Account()
        self.cost = Cost()  # of the last query
        self._points: list[Array] = []  # where each trial lies on the cube
        self._order: list[int] = []  # numbers of complete trials, in the order they were told
        self._y: list[float] = []  # their scores, to be maximised

    @classmethod
    def paper(
        cls,
        federation: Federation,
        policy: Policy | None = None,
        *,
        name: str | None = None,
        seed: int | None = None,
        initial: Sequence[Mapping[str, Value]] | None = None,
    ) -> Agent:
        """An agent with the settings of the paper's real-world experiments.

        Give it a `Federation.paper`. Its policy is FTS with p_t = 1 − 1/t² unless another is given;
        the defaults of `RGPE` and `TAF` are the paper's. Scores go into messages as they are.
        """
        policy = FTS(schedule=Power(2)) if policy is None else policy
        return cls(federation, policy, name=name, seed=seed, settings=PAPER, initial=initial)

    def __repr__(self) -> str:
        return (
            f"Agent({self.name!r}, {self.policy}, {len(self.trials)} trials, "
            f"{len(self.inbox)} messages)"
        )

    # Queries and scores

    def ask(self, key: int | None = None) -> Trial:
        """The next trial to run; several may be asked for before one is told.

        With a ``key``, this query has randomness of its own, that of the agent's seed and this key,
        and initial points are counted by it: workers that share a study, or one that starts again,
        ask each with the number of the trial, and never for the same.
        """
        rng = self._rng if key is None else self._stream(_QUERY, key)
        with one_thread():
            initial = self._next_initial(key)
            if initial is not None:
                return self._new_trial(initial, "initial")
            t = 1 + sum(trial.t is not None and trial.state != "failed" for trial in self.trials)
            query = self._query(self._target(t, rng, key))
            return self._new_trial(self._not_again(query.x, rng), query.source, query, t)

    def tell(self, trial: Trial | Mapping[str, Value], score: float | None) -> Trial:
        """Report the score of a trial, or of parameters that were never asked for.

        None is a failed trial, which says nothing about its point; if the failure is the point's
        own fault, tell a bad score instead. A trial is told once.
        """
        if isinstance(trial, Trial):
            known = self._known(trial)
            _check_score(known, score)
        elif isinstance(trial, Mapping):
            known, x = self._from_elsewhere(trial, "told")
            _check_score(known, score)
            self.trials.append(known)
            self._points.append(x)
        else:
            raise TypeError(f"tell got {trial!r}, expected a trial from ask() or its params")
        if score is None:
            known.state = "failed"
        else:
            known.state, known.score = "complete", float(score)
            self._observe(known)
        if isinstance(trial, Trial):
            trial.state, trial.score = known.state, known.score
        return _copy(known)

    def open(
        self,
        params: Mapping[str, Value],
        *,
        source: Source = "told",
        t: int | None = None,
        peer: str | None = None,
        credit: Mapping[str, float] | None = None,
        weights: Mapping[str, float] | None = None,
    ) -> Trial:
        """A trial that was begun elsewhere, by another worker or before a restart; pending.

        The other arguments are as `ask` gave them there, so that the policy counts its queries
        right and `explain` knows whose they were. Tell its score as that of any other.
        """
        if source not in get_args(Source):
            raise ValueError(f"source is {source!r}, expected one of {', '.join(get_args(Source))}")
        if t is not None and t < 1:
            raise ValueError(f"t is {t!r}, expected 1 or more, or None if no policy asked for it")
        trial, x = self._from_elsewhere(params, source)
        trial.t, trial.peer = t, peer
        trial.credit, trial.weights = dict(credit or {}), dict(weights or {})
        self.trials.append(trial)
        self._points.append(x)
        return _copy(trial)

    @property
    def best(self) -> Trial | None:
        """The complete trial with the best score in the space's direction; None before any."""
        if not self._y:
            return None
        return _copy(self.trials[self._order[int(np.argmax(self._y))]])

    @property
    def starting(self) -> bool:
        """Whether the next query is an initial point, and not yet the policy's."""
        return self._next_initial() is not None

    # Messages

    def message(self) -> Message:
        """What this agent hands out: one draw ω of its weights, or its belief; and no trial.

        It stays the same until a new score is told: a retry is the same message, and within an
        epoch nobody can average draws.
        """
        if self._message is None:
            with one_thread():
                self._message = self._new_message(self._belief())
        self.account.count_sent(self._message)
        return self._message

    def receive(self, messages: Wire | Iterable[Wire]) -> int:
        """Take messages of peers; how many were taken.

        If one is refused, `MessageRefused` says which and why, and none is taken. Messages of
        another epoch, from this agent itself, or not newer than what is held are ignored.
        """
        if isinstance(messages, Message | bytes | bytearray):
            messages = [messages]
        decoded = [_decoded(i, message) for i, message in enumerate(messages)]
        weights = [self.policy.weight(message.sender) for message in decoded]
        for message, weight in zip(decoded, weights, strict=True):
            self.federation.check(message)
            self.inbox.check(message, weight)
        with one_thread():
            return sum(map(self._take, decoded, weights))

    # Agreement

    def scalars(self) -> Scalars:
        """What agents share to agree on the scalars of their federation: its fitted ones; no trial.

        They are fitted in the same way whatever its settings, so that all agents' mean the same,
        and keep two digits. `Federation.agree` makes a federation of many agents' scalars.
        """
        t = len(self._order)
        if t < _ENOUGH:
            raise ValueError(
                f"agent {self.name!r} has {t} scores, too few to fit what others could rely on: "
                f"tell it {_ENOUGH} or more"
            )
        with one_thread():
            y = Standardised(np.array(self._y)).z
            hyper = Fit()(self._at(self._order), y, self._stream(*b"scalars"))
        return Scalars(
            fingerprint=self.federation.fingerprint,
            sender=self.name,
            length_scales=tuple(float(f"{scale:.2g}") for scale in hyper.length_scales),
            noise_variance=float(f"{hyper.noise_variance:.2g}"),
            t_n=t,
        )

    def move(self, federation: Federation) -> None:
        """Go on in a later epoch of the same federation, with all trials and what it learnt.

        Messages it held are of the old epoch: it forgets them, and hands out a new one. If it is
        in this epoch already nothing happens. `FederationMismatch` names what differs otherwise.
        """
        self.federation.require_later(federation)
        if federation.epoch == self.federation.epoch:
            return
        self.federation = federation
        self.inbox = inbox_for(federation.kind, federation.features, self._entropy)
        self._regression = Regression(federation.phi, federation.noise_variance)
        self._message = None
        self.account.last_sent = -1

    # Files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all of the agent to one file, whole or not at all."""
        saved = savefile.Saved(
            federation=self.federation.to_toml(),
            policy=savefile.writable(self.policy),
            name=self.name,
            settings=self.settings,
            entropy=savefile.to_packable(self._entropy),
            rng=savefile.to_packable(self._rng.bit_generator.state),
            trials=self.trials,
            points=[x.tolist() for x in self._points],
            order=self._order,
            given=None if self._given is None else [x.tolist() for x in self._given],
            within={} if self._part is None else self._part.parameters,
            surrogate=self._surrogate.state,
            account=self.account,
            message=None if self._message is None else self._message.encode(),
            inbox=savefile.to_packable(self.inbox.state()),
        )
        savefile.write(path, saved)

    @classmethod
    def load(cls, path: str | os.PathLike[str], policy: Policy | None = None) -> Agent:
        """The agent that `save` wrote; it goes on as if it had never stopped.

        A policy of your own, or one with a schedule that is a function, is not in the file: give
        it again. A file that is cut short or foreign is refused, and left as it is.
        """
        saved = savefile.read(path)
        if policy is None and saved.policy is None:
            raise savefile.FileRefused(
                f"{os.fspath(path)} does not hold its agent's policy, which is none of fedbo's own "
                "or has a function in it; give it again: Agent.load(path, policy=...)"
            )
        agent = cls(
            Federation.from_toml(saved.federation),
            saved.policy if policy is None else policy,
            name=saved.name,
            settings=saved.settings,
            within=saved.within,
        )
        agent._restore(saved)
        return agent

    # What became of it

    def explain(self, draws: int = 32) -> Explanation:
        """Where its queries came from, what each peer contributed, what collaborating saved.

        The last is an estimate: ``draws`` replays of what it would have found alone, by its own
        model (see `fedbo.explain`); at 50 trials that takes seconds. It changes no later query.
        """
        from fedbo.insight.explain import explain

        return explain(self, draws)

    def initial_design(self) -> list[Array]:
        """Return the points (D,) that a solo agent would start with."""
        if self._given is not None:
            return self._given
        design, space = DESIGNS[self.settings.design], self.federation.space
        return [design(space, i, self._stream(_DESIGN)) for i in range(self.settings.n_initial)]

    def stream(self, stream: Stream) -> np.random.Generator:
        """Return a fresh generator of one of the agent's random streams."""
        return self._stream(*stream.value)

    def _restore(self, saved: savefile.Saved) -> None:
        self._entropy = savefile.from_packable(saved.entropy)
        self._rng.bit_generator.state = savefile.from_packable(saved.rng)
        self.inbox = type(self.inbox).restore(savefile.from_packable(saved.inbox))
        dimensions = self.federation.space.dimensions
        self._surrogate = Surrogate(self.settings.surrogate, dimensions, saved.surrogate)
        self._given = None if saved.given is None else [np.array(x) for x in saved.given]
        self.account = saved.account
        self.trials = saved.trials
        self._points = [np.array(x) for x in saved.points]
        for number in saved.order:
            self._observe(self.trials[number])
        if saved.message is not None:
            self._message = Message.decode(saved.message)

    # How a query comes about

    def _stream(self, *key: int) -> np.random.Generator:
        """A stream of its own, so that messages and designs do not disturb the queries."""
        return np.random.default_rng(np.random.SeedSequence(self._entropy, spawn_key=key))

    def _next_initial(self, key: int | None = None) -> Array | None:
        """The next initial point, or None when it is the policy's turn."""
        asked = sum(trial.source == "initial" for trial in self.trials)
        if self._given is not None:
            return self._given[asked] if asked < len(self._given) else None
        have = sum(
            (trial.t is None and trial.state != "failed") or trial.state == "complete"
            for trial in self.trials
        )
        if have >= self.policy.starts(self.settings.n_initial, len(self.inbox)):
            return None
        return self._design_point(asked if key is None else key)

    def _design_point(self, i: int) -> Array:
        """The i-th point of the design; on a discrete domain the next one that is not tried."""
        space, barred = self.federation.space, self._tried()
        while True:
            x = DESIGNS[self.settings.design](self._part or space, i, self._stream(_DESIGN))
            if (
                barred is None
                or space.points is None
                or rows_of(x[None], space.points) not in barred
            ):
                return x
            i += 1

    def _more_design(self, key: int | None) -> Array | None:
        """The next point of the design for a policy that did not start with all of them."""
        sources = [trial.source for trial in self.trials]
        if sources.count("initial") + sources.count("told") >= self.settings.n_initial:
            return None
        return self._design_point(sources.count("initial") if key is None else key)

    def _target(self, t: int, rng: np.random.Generator, key: int | None) -> Target:
        space = self.federation.space
        return Target(
            t=t,
            space=space,
            X=self._at(self._order),
            y=self._standard(np.array(self._y)),
            open_points=self._open_points,
            part=self._part,
            design=lambda: self._more_design(key),
            barred=self._tried(),
            surrogate=self._surrogate,
            inbox=self.inbox,
            phi=self.federation.phi,
            maximiser=MAXIMISERS[self.settings.maximiser],
            rng=rng,
        )

    def _open_points(self) -> Array:
        """Where trials were asked for that have no score: pending or failed."""
        return self._at([trial.number for trial in self.trials if trial.score is None])

    def _tried(self) -> Rows | None:
        """Rows of a discrete domain that are not to be tried again; None once all were."""
        points = self.federation.space.points
        if points is None or self.settings.repeats != "avoid" or not self._points:
            return None
        rows = np.unique(rows_of(np.array(self._points), points))
        return rows if len(rows) < len(points) else None

    def _at(self, numbers: Sequence[int]) -> Array:
        """The points (n, D) of the trials with these numbers."""
        X = [self._points[number] for number in numbers]
        return np.array(X).reshape(-1, self.federation.space.dimensions)

    def _query(self, target: Target) -> Query:
        start = time.thread_time()
        query = self.policy.query(target)
        fit, maximise = target.seconds["fit"], target.seconds["maximise"]
        rest = time.thread_time() - start - fit - maximise
        self.cost = Cost(fit=fit, weights=rest, maximise=maximise)
        return query

    def _not_again(self, x: Array, rng: np.random.Generator) -> Array:
        if self.settings.repeats == "random":
            params = self.federation.space.decode(x)
            if any(trial.params == params for trial in self.trials):
                x = (self._part or self.federation.space).sample(rng, 1)[0]
        return x

    def _new_trial(
        self, x: Array, source: Source, query: Query | None = None, t: int | None = None
    ) -> Trial:
        space = self.federation.space
        params = space.decode(x)
        trial = Trial(
            number=len(self.trials),
            params=params,
            source=source,
            peer=None if query is None else query.peer,
            t=t,
            agent=self.name,
            credit={} if query is None else query.credit,
            weights={} if query is None else query.weights,
        )
        self._points.append(space.encode(params))
        self.trials.append(trial)
        return _copy(trial)

    def _from_elsewhere(self, params: Mapping[str, Value], source: Source) -> tuple[Trial, Array]:
        """A trial with these very params, not yet entered, and where it lies."""
        space = self.federation.space
        x = space.encode(params)
        trial = Trial(
            number=len(self.trials),
            params={name: to_builtin(params[name]) for name in space.names},
            source=source,
            agent=self.name,
        )
        return trial, x

    def _known(self, trial: Trial) -> Trial:
        """This agent's own record of the trial, still open."""
        mine = self.trials[trial.number] if 0 <= trial.number < len(self.trials) else None
        if mine is None or trial.agent != self.name:
            raise ValueError(
                f"trial {trial.number} with {trial.params} was not asked of agent {self.name!r}; "
                "to tell of a trial from elsewhere, give its params: tell(params, score)"
            )
        if mine.state != "pending":
            outcome = "failed" if mine.score is None else f"scored {mine.score}"
            raise ValueError(f"trial {mine.number} was told already: it {outcome}")
        return mine

    # How scores become a message, and a message a row of the inbox

    def _take(self, message: Message, weight: float) -> bool:
        if message.epoch != self.federation.epoch or message.sender == self.name:
            return False
        taken = self.inbox.put(message, weight)
        if taken:
            self.account.received.count(message)
        return taken

    def _observe(self, trial: Trial) -> None:
        assert trial.score is not None
        self._order.append(trial.number)
        self._y.append(self.federation.space.sign * trial.score)
        self._message = None

    def _standard(self, y: Array) -> Array:
        return self.settings.scores(y).z

    def _evidence(self) -> tuple[Regression, Array]:
        """What messages draw on: observations in the shared features, and their standard scores."""
        rows = [
            i
            for i, number in enumerate(self._order)
            if self.settings.tell_initial or self.trials[number].source != "initial"
        ]
        new = rows[len(self._regression) :]
        if new:
            self._regression.add(self._at([self._order[i] for i in new]))
        return self._regression, self._standard(np.array([self._y[i] for i in rows]))

    def _belief(self) -> Posterior:
        """The posterior of this evidence."""
        regression, y = self._evidence()
        if not len(y):
            raise ValueError(
                f"agent {self.name!r} has nothing to hand out yet: tell it a score first"
            )
        return regression.posterior(y)

    def _new_message(self, belief: Posterior) -> Message:
        sequence = len(self._order)
        header: Header = {
            "fingerprint": self.federation.fingerprint,
            "epoch": self.federation.epoch,
            "sender": self.name,
            "sequence": sequence,
            "t_n": len(self._regression),
        }
        if self.federation.kind == "weights":
            # other noise in another epoch, or two messages of the same scores would share it
            epoch = self.federation.epoch
            key = (sequence, epoch) if epoch else (sequence,)
            omega = belief.draw(self._stream(_MESSAGE, *key))
            message = Message.of_weights(omega, **header)
        else:
            best = float(self._evidence()[1].max())
            incumbent = best if self.federation.kind == "belief+incumbent" else None
            message = Message.of_belief(belief.nu, belief.covariance(), incumbent, **header)
        try:
            self.federation.check(message)
        except MessageRefused as error:
            raise ValueError(
                f"agent {self.name!r} has scores that no peer would take as they are: {error}; "
                "give it settings that standardise them"
            ) from None
        return message


def _decoded(i: int, message: Wire) -> Message:
    if isinstance(message, Message):
        return message
    if not isinstance(message, bytes | bytearray):
        raise TypeError(f"messages[{i}] is {message!r}, expected a Message or its bytes")
    try:
        return Message.decode(message)
    except MessageRefused as error:
        raise MessageRefused(f"messages[{i}]: {error}") from None


def _copy(trial: Trial) -> Trial:
    """The trial for the user, who may change it."""
    return msgspec.structs.replace(
        trial, params=dict(trial.params), credit=dict(trial.credit), weights=dict(trial.weights)
    )


def _check_agent(federation: Federation, policy: Policy, name: str, seed: int | None) -> None:
    if not isinstance(federation, Federation):
        raise TypeError(f"federation is {federation!r}, expected a fedbo.Federation")
    if not isinstance(policy, Policy):
        raise TypeError(f"policy is {policy!r}, expected a policy such as fedbo.FTS()")
    if (
        not isinstance(name, str)
        or not name.isprintable()
        or not 1 <= len(name.encode()) <= SENDER_BYTES
    ):
        raise ValueError(f"name is {name!r}, expected 1 to {SENDER_BYTES} bytes of printable UTF-8")
    if seed is not None and (not hasattr(seed, "__index__") or seed < 0):
        raise ValueError(f"seed is {seed!r}, expected an int of 0 or more, or None")
    if federation.kind not in policy.kinds:
        raise ValueError(
            f"{type(policy).__name__} cannot use messages of kind {federation.kind!r}; "
            f"make the federation with kind={' or '.join(map(repr, policy.kinds))}"
        )


def _check_score(trial: Trial, score: float | None) -> None:
    if score is None:
        return
    try:
        finite = math.isfinite(score) and not isinstance(score, bool)
    except (TypeError, OverflowError):
        finite = False
    if not finite:
        raise ValueError(
            f"trial {trial.number} with {trial.params} was told {score!r}, expected a finite "
            "number, or None if it failed; nothing was recorded"
        )
