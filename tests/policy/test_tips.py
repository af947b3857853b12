"""Tips: which one comes next, how many are followed, and what they are worth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from policy.ensembles import peers_of

from fedbo import (
    EI,
    TS,
    Agent,
    Categorical,
    Federation,
    Float,
    Message,
    MessageRefused,
    Settings,
    TipsThenPool,
)
from fedbo.federation.shared import Shared
from fedbo.policy import Query, Target
from fedbo.policy.tips import IN_A_ROW

PLANE = {"x": Float(0, 1), "y": Float(0, 1)}
TOPS = [(0.2, 0.2), (0.8, 0.2), (0.2, 0.8), (0.8, 0.8), (0.5, 0.5)]


def score(params: dict[str, Any], top: Sequence[float]) -> float:
    return -((params["x"] - top[0]) ** 2) - (params["y"] - top[1]) ** 2


def peer(federation: Federation, i: int, top: Sequence[float], trials: int = 25) -> Agent:
    """An agent that knows the scores of a shuffled grid, and so its top to a tenth or so."""
    agent, rng = Agent(federation, TS(), name=f"peer-{i}", seed=i), np.random.default_rng(i)
    for x in federation.space.sample(rng, trials):
        params = federation.space.decode(x)
        agent.tell(params, score(params, top))
    return agent


def messages(federation: Federation, tops: Sequence[Sequence[float]] = TOPS) -> list[Message]:
    return [peer(federation, i, top).message() for i, top in enumerate(tops)]


@pytest.fixture(scope="module")
def plane() -> Federation:
    return Federation(PLANE)


@pytest.fixture(scope="module")
def five(plane: Federation) -> list[Message]:
    return messages(plane)


def newcomer(federation: Federation, received: Sequence[Message], **options: Any) -> Agent:
    agent = Agent(federation, name="me", **{"seed": 0, **options})
    agent.receive(received)
    return agent


def run(agent: Agent, n: int, top: Sequence[float] = (0.8, 0.8)) -> list[str]:
    """Make n trials; return the sources of all trials."""
    for _ in range(n):
        trial = agent.ask()
        agent.tell(trial, score(trial.params, top))
    return [trial.source for trial in agent.trials]


class Shown(TipsThenPool, frozen=True, kw_only=True):
    """The default policy, which keeps what it was shown."""

    seen: Any

    def query(self, target: Target) -> Query:
        self.seen.append(target)
        return super().query(target)


# The tip of a message


def test_a_message_names_the_best_trial_of_its_senders_own_model(plane: Federation) -> None:
    """With noisy scores, that is where an independent GP with the same parameters is highest."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

    for seed in range(5):
        agent = Agent(plane, TS(), name="peer", seed=seed)
        rng = np.random.default_rng(seed)
        for x in rng.random((30, 2)):
            params = plane.space.decode(x)
            agent.tell(params, score(params, (0.7, 0.3)) + 0.1 * rng.standard_normal())
        X = np.array([plane.space.encode(trial.params) for trial in agent.trials])
        z = agent.settings.scores(np.array([trial.score for trial in agent.trials])).z
        model = agent.settings.model(2)
        model.update(X, z, np.random.default_rng(0))
        hyper = model.hyper
        scales = [*hyper.length_scales]
        shape = RBF(scales) if hyper.kernel == "se" else Matern(scales, nu=2.5)
        kernel = ConstantKernel(hyper.signal_variance) * shape
        oracle = GaussianProcessRegressor(kernel, alpha=hyper.noise_variance, optimizer=None)
        mean = oracle.fit(X, z).predict(X)
        named = Shared.of(plane).tip(agent.message())
        assert named is not None
        near = np.abs(X - named).max(axis=1) <= 0.5 / 15 + 1e-9
        assert mean[near].max() >= mean.max() - 0.02 * np.ptp(mean)


@pytest.mark.parametrize("who", ["federation", "sender"])
def test_tips_can_be_switched_off(who: str, plane: Federation) -> None:
    """The newcomer's first trial is then where its peers' functions are highest."""
    where = Federation(PLANE, tips=False) if who == "federation" else plane
    settings = Settings(tips=who == "federation")
    peers = [Agent(where, TS(), name=f"peer-{i}", seed=i, settings=settings) for i in range(3)]
    for sender in peers:
        for trial in peer(where, 0, (0.3, 0.7), 40).trials:
            sender.tell(trial.params, trial.score)
    sent = [sender.message() for sender in peers]
    assert all(message.tip == b"" for message in sent)
    trial = newcomer(where, sent).ask()
    assert trial.source == "tip"
    assert np.hypot(trial.params["x"] - 0.3, trial.params["y"] - 0.7) < 0.25


def test_a_tip_that_is_no_point_is_refused(five: list[Message]) -> None:
    where = Federation({"kind": Categorical(["a", "b", "c"])})
    agent = Agent(where, name="peer", seed=0)
    for i, kind in enumerate("abc"):
        agent.tell({"kind": kind}, float(i))
    message = agent.message()
    for tip in (b"\x03", b"\xff", b"\x00\x00"):
        body = type(message.body).__struct_fields__
        fields = {name: getattr(message.body, name) for name in body} | {"tip": tip}
        header = {name: getattr(message, name) for name in message.__struct_fields__}
        bad = Message(**(header | {"body": type(message.body)(**fields)}))
        with pytest.raises(MessageRefused, match=f"its tip is {tip.hex()}, which is no tip"):
            newcomer(where, [Message.decode(bad.encode())])


# Which tip comes next


def test_tips_are_chosen_greedily(plane: Federation, five: list[Message]) -> None:
    """The first tip by brute force: the smallest mean regret of the peers."""
    policy = Shown(seen=[])
    first = newcomer(plane, five, policy=policy).ask()
    peers = peers_of(policy.seen[0])
    grid = Shared.of(plane).basis.psi @ peers.m.T
    mean_regret = {}
    for tip in peers.tips:
        losses = []
        for n, g in enumerate(peers.m):
            value = Shared.of(plane).basis.coordinates(tip[None])[0] @ g
            r = np.clip((grid[:, n].max() - value) / np.ptp(grid[:, n]), 0.0, 1.0)
            losses.append(0.0 if (tip == peers.tips[n]).all() else r)
        mean_regret[tuple(tip)] = np.mean(losses)
    x = plane.space.encode(first.params)
    assert mean_regret[tuple(x)] == pytest.approx(min(mean_regret.values()))


def test_peers_that_predict_the_scores_count_more(plane: Federation) -> None:
    """After six trials, the next tip is that of the two peers whose function it is."""
    received = messages(plane, [TOPS[0]] * 4 + [TOPS[3]] * 2)
    first = newcomer(plane, received).ask()
    assert first.credit.keys() >= {"peer-0", "peer-1"}
    agent = newcomer(plane, [])
    for x, y in ((0.1, 0.1), (0.1, 0.6), (0.3, 0.4), (0.5, 0.1), (0.5, 0.5), (0.9, 0.3)):
        agent.tell({"x": x, "y": y}, score({"x": x, "y": y}, TOPS[3]))
    agent.receive(received)
    trial = agent.ask()
    assert trial.source == "tip"
    assert sum(trial.credit.get(name, 0.0) for name in ("peer-4", "peer-5")) > 0.9
    assert sum(trial.trust.get(name, 0.0) for name in ("peer-4", "peer-5")) > 0.9
    assert np.hypot(trial.params["x"] - 0.8, trial.params["y"] - 0.8) < 0.25


def test_the_first_trials_are_tips_and_the_eighth_is_an_initial_point(
    plane: Federation, five: list[Message]
) -> None:
    agent = newcomer(plane, five)
    sources = run(agent, 8)
    assert sources[:IN_A_ROW] == ["tip"] * IN_A_ROW
    assert sources.index("initial") == 7
    assert all(trial.t is None for trial in agent.trials[:3])
    assert agent.trials[3].t == 1
    places = {tuple(Shared.of(plane).tip(message)) for message in five}
    tried = [tuple(plane.space.encode(trial.params)) for trial in agent.trials[:IN_A_ROW]]
    assert len({*tried}) == IN_A_ROW
    assert {*tried} <= places


def test_if_an_initial_point_beats_the_tips_the_others_follow(plane: Federation) -> None:
    """The peers praise a corner that is the worst place."""
    received = messages(plane, [(0.0, 0.0)] * 3)
    sources = run(newcomer(plane, received), 10, (1.0, 1.0))
    tips = sources.index("initial")
    assert 1 <= tips <= IN_A_ROW
    assert sources[tips : tips + 3] == ["initial"] * 3


@pytest.mark.parametrize("n, places", [(1, [7]), (5, [3, 4])])
def test_initial_points_of_the_user_come_after_the_tips(
    n: int, places: list[int], plane: Federation, five: list[Message]
) -> None:
    """They replace the design: one comes in any case, more of them fill up to as many trials."""
    points = [{"x": 0.0, "y": i / 8} for i in range(n)]
    agent = newcomer(plane, five, initial=points)
    sources = run(agent, 8)
    assert sources[:IN_A_ROW] == ["tip"] * IN_A_ROW
    assert [i for i, source in enumerate(sources) if source == "initial"] == places
    initial = [trial.params for trial in agent.trials if trial.source == "initial"]
    assert initial == points[: len(places)]


def test_ever_new_tips_do_not_take_over(plane: Federation) -> None:
    """A peer that sends another tip before each trial: at most three in a row are followed."""
    agent, rng = newcomer(plane, []), np.random.default_rng(0)
    run(agent, 3)
    for t in range(24):
        top = rng.random(2)
        sender = Agent(plane, TS(), name="peer", seed=t)
        for x in plane.space.sample(rng, 20 + t):
            params = plane.space.decode(x)
            sender.tell(params, score(params, top))
        agent.receive(sender.message())
        run(agent, 1)
    best, row = -np.inf, 0
    for trial in agent.trials:
        if trial.source == "tip":
            row += 1
        elif trial.source in ("own", "pool") and trial.score > best:
            row = 0
        assert row <= IN_A_ROW
        best = max(best, trial.score)


@pytest.mark.slow
def test_young_peers_help_from_the_first_trial(plane: Federation) -> None:
    """Three peers with 10 trials on shifted functions: half the regret of EI alone, paired."""
    together, alone = [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        top = 0.2 + 0.6 * rng.random(2)
        sent = [
            peer(plane, 10 * seed + i, top + 0.1 * rng.standard_normal(2), 10).message()
            for i in range(3)
        ]
        for policy, received, losses in ((None, sent, together), (EI(), [], alone)):
            agent = newcomer(plane, received, policy=policy, seed=seed)
            run(agent, 5, top)
            scores = [trial.score for trial in agent.trials]
            losses.append(-np.maximum.accumulate(scores)[[0, 2, 4]])
    saved = np.array(alone) - np.array(together)
    assert (np.mean(together, axis=0)[:2] < 0.5 * np.mean(alone, axis=0)[:2]).all()
    assert (saved.mean(axis=0) > 2 * saved.std(axis=0) / np.sqrt(len(saved)))[:2].all()
