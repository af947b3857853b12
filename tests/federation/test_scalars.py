"""Agents agree on scalars, start a new epoch when it is worth it, and go on in it."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from contracts.parties import LISTED, MIXED, M, asked, bowl, cube, learn, peer, run
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbo import (
    FTS,
    RGPE,
    TS,
    Agent,
    Federation,
    FederationMismatch,
    Float,
    MessageRefused,
    TipsThenPool,
)
from fedbo.federation.scalars import Scalars, agreed_scalars
from fedbo.message import Message
from fedbo_paper.preset import paper_agent

OURS = Federation(cube(2), features=M)
USUAL = 0.3 * math.sqrt(2)
NOW = (0.4, 0.5)  # length scales before the agreement


def scalars(sender: str = "a", scales: tuple[float, ...] = (0.3, 0.6), **changes: Any) -> Scalars:
    fields = {"fingerprint": OURS.fingerprint, "noise_variance": 3e-3, "t_n": 20} | changes
    return Scalars(sender=sender, length_scales=scales, **fields)


def many(*scales: tuple[float, ...], **changes: Any) -> list[Scalars]:
    return [scalars(f"agent-{i}", scale, **changes) for i, scale in enumerate(scales)]


# What an agent shares


def wavy(x: float, y: float) -> float:
    """Changes fast along x and hardly along y."""
    return math.sin(12 * x) + 0.2 * y


def wavy_agent(i: int, federation: Federation = OURS, trials: int = 30) -> Agent:
    agent = Agent(federation, name=f"wavy-{i}", seed=i)
    return learn(agent, trials, lambda params: wavy(params["x0"], params["x1"]))


def test_an_agent_shares_what_it_fitted() -> None:
    mine = wavy_agent(0).scalars()
    assert (mine.sender, mine.t_n, len(mine.length_scales)) == ("wavy-0", 30, 2)
    assert mine.length_scales[0] < 0.5 * mine.length_scales[1]
    assert mine.noise_variance < 0.01
    mine.check(OURS.fingerprint, 2)


def test_scalars_hold_a_handful_of_numbers_of_two_digits() -> None:
    mine = wavy_agent(1).scalars()
    assert len(mine.encode()) < 64
    for value in (*mine.length_scales, mine.noise_variance):
        assert float(f"{value:.2g}") == value


def test_sharing_scalars_changes_no_query_and_repeats_itself() -> None:
    quiet, open_ = (Agent(OURS, TS(), name="a", seed=3) for _ in range(2))
    for _ in range(12):
        run(quiet, 1)
        run(open_, 1)
        if len(open_.trials) >= 10:
            assert open_.scalars() == open_.scalars()
    assert asked(quiet) == asked(open_)
    assert quiet.message() == open_.message()


def test_scalars_do_not_depend_on_settings_units_or_direction() -> None:
    plain = wavy_agent(0)
    minimised = paper_agent(OURS, name="wavy-0", seed=0)
    learn(minimised, 30, lambda params: 1e6 * wavy(params["x0"], params["x1"]) - 5e6)
    assert minimised.scalars() == plain.scalars()


def test_too_few_scores_are_an_error_that_says_how_many_there_are() -> None:
    agent = learn(Agent(OURS, name="young"), 9, bowl(OURS))
    with pytest.raises(ValueError, match=r"'young' has 9 scores, too few.*tell it 10 or more"):
        agent.scalars()
    agent.tell({"x0": 0.1, "x1": 0.2}, None)
    with pytest.raises(ValueError, match="has 9 scores"):
        agent.scalars()
    assert learn(agent, 1, bowl(OURS)).scalars().t_n == 10


@pytest.mark.parametrize("space", [MIXED, LISTED, cube(8)])
def test_scalars_of_any_space_and_of_constant_scores(space: Any) -> None:
    federation = Federation(space, features=M)
    agents = [learn(Agent(federation, name=f"{i}"), 12, lambda _: 1.0) for i in range(3)]
    later = federation.agree([agent.scalars() for agent in agents])
    assert np.isfinite(later.phi.length_scales).all()


# On the wire


def test_scalars_travel() -> None:
    mine = scalars()
    there = Scalars.decode(bytearray(mine.encode()))
    assert there == mine and hash(there) == hash(mine)


@pytest.mark.parametrize(
    "fields",
    [
        {"length_scales": (0.3, math.nan)},
        {"length_scales": (0.3, math.inf)},
        {"length_scales": (0.3, 0.0)},
        {"length_scales": (-0.3, 0.3)},
        {"noise_variance": 0.0},
        {"noise_variance": math.nan},
        {"sender": ""},
        {"sender": "x" * 65},
        {"t_n": 0},
        {"t_n": 2**31},
        {"fingerprint": b"short"},
        {"version": 2},
        {"length_scales": "long"},
        {"t_n": 1.5},
    ],
)
def test_absurd_scalars_are_refused_on_arrival(fields: dict[str, Any]) -> None:
    whole = {name: getattr(scalars(), name) for name in Scalars.__struct_fields__} | fields
    with pytest.raises(MessageRefused):
        Scalars.decode(msgspec.msgpack.encode([*whole.values()]))


def test_garbage_is_refused() -> None:
    whole = scalars().encode()
    for data in (b"", b"garbage", whole[:-1], whole + b"\x00", msgspec.msgpack.encode([1, {}])):
        with pytest.raises(MessageRefused, match=f"{len(data)} bytes are not scalars"):
            Scalars.decode(data)


def test_a_message_is_no_scalars() -> None:
    with pytest.raises(MessageRefused):
        Scalars.decode(peer(OURS).message().encode())
    with pytest.raises(MessageRefused):
        Message.decode(scalars().encode())


def test_foreign_scalars_are_refused_by_name() -> None:
    honest = many((0.5, 0.5), (0.5, 0.5), (0.5, 0.5))
    other = Federation({"x0": Float(0, 2), "x1": Float(0, 1)}, features=M)
    with pytest.raises(MessageRefused, match="scalars of 'far': foreign space"):
        OURS.agree([*honest, scalars("far", fingerprint=other.fingerprint)])
    with pytest.raises(MessageRefused, match="'odd': they have 3 length scales, expected 2"):
        OURS.agree([*honest, scalars("odd", (0.1, 0.1, 0.1))])


def test_scalars_of_another_epoch_are_as_good() -> None:
    later = OURS.next_epoch(length_scale=0.9)
    given = many((0.1, 0.1), (0.1, 0.1), (0.1, 0.1), fingerprint=later.fingerprint)
    assert OURS.agree(given).length_scale == later.agree(given).length_scale


# The agreement


def agreed(given: list[Scalars]) -> tuple[tuple[float, ...], float]:
    found = agreed_scalars(given, USUAL, NOW)
    assert found is not None
    return found


def test_length_scales_go_half_way_and_noise_follows() -> None:
    given = many((0.1, 1.5), (0.1, 1.5), (0.1, 1.5), noise_variance=1e-3)
    length_scales, noise = agreed(given)
    assert length_scales == pytest.approx(
        (math.sqrt(USUAL * 0.1), math.sqrt(USUAL * 1.5)), rel=0.05
    )
    assert noise == 0.03


def test_wherever_agents_end_up_it_stays_within_limits() -> None:
    for scale, noise in itertools.product((1e-300, 1e-9, 1e9, 1e300), (1e-300, 1e300)):
        given = many(*[(scale, scale)] * 3, noise_variance=noise)
        length_scales, agreed_noise = agreed(given)
        assert all(0.09 * USUAL < scale < 2.1 * USUAL for scale in length_scales)
        assert 0.01 <= agreed_noise <= 0.1


@pytest.mark.parametrize("wild", [1e-12, 1e-3, 40.0, 1e12])
def test_one_wild_agent_of_four_moves_it_little(wild: float) -> None:
    honest = many((0.2, 0.9), (0.25, 1.0), (0.3, 1.1))
    stray = scalars("wild", (wild, 1.0 / wild), noise_variance=wild, t_n=2**31 - 1)
    without, with_it = agreed(honest), agreed([*honest, stray])
    assert without[0] != NOW
    assert with_it[0] == pytest.approx(without[0], rel=0.1)
    assert with_it[1] == without[1]


@settings(deadline=None, max_examples=50)
@given(
    honest=st.integers(3, 12),
    lies=st.lists(st.floats(1e-30, 1e30), min_size=2, max_size=2),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_third_of_liars_stay_within_what_honest_agents_found(
    honest: int, lies: list[float], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    found = np.exp(rng.uniform(np.log(0.2), np.log(rng.choice([0.3, 0.9])), (honest, 2)))
    given = many(*map(tuple, found.tolist()))
    liars = [scalars(f"liar-{i}", (lies[0], lies[1])) for i in range(honest // 2)]
    length_scales = np.array(agreed([*given, *liars])[0])
    low, high = np.sqrt(USUAL * found.min(axis=0)), np.sqrt(USUAL * found.max(axis=0))
    moved = length_scales != NOW
    assert np.all((length_scales >= 0.95 * low)[moved])
    assert np.all((length_scales <= 1.05 * high)[moved])


def test_a_dimension_on_which_agents_differ_stays_as_it_is() -> None:
    given = many((0.05, 0.1), (0.05, 0.2), (0.06, 0.4), (0.06, 0.8), (0.06, 1.6))
    length_scales, _ = agreed(given)
    assert length_scales[0] < 0.2 and length_scales[1] == NOW[1]
    later = OURS.agree(given)
    assert later.phi.length_scales[1] == OURS.phi.length_scales[1]


@settings(deadline=None, max_examples=50)
@given(
    scales=st.lists(st.tuples(st.floats(1e-3, 1e2), st.floats(1e-3, 1e2)), min_size=3, max_size=9),
    order=st.randoms(use_true_random=False),
)
def test_the_order_does_not_matter(scales: list[tuple[float, float]], order: Any) -> None:
    given = many(*scales)
    again = [*given]
    order.shuffle(again)
    first, second = OURS.agree(given), OURS.agree(again)
    assert first == second and first.fingerprint == second.fingerprint


def test_agreed_numbers_are_short_and_survive_the_file(tmp_path: Path) -> None:
    later = OURS.agree(many((0.0123456, 3.3), (0.0134567, 3.7), (0.0145678, 3.9)))
    assert isinstance(later.length_scale, tuple)
    for value in later.length_scale:
        assert float(f"{value:.2g}") == value
    later.save(tmp_path / "federation.toml")
    assert Federation.load(tmp_path / "federation.toml").fingerprint == later.fingerprint


def test_a_small_change_is_not_worth_an_epoch() -> None:
    near = many(*[(USUAL * 0.8, USUAL * 1.3)] * 3)
    assert OURS.agree(near) is OURS


def test_each_scalar_alone_can_be_worth_an_epoch() -> None:
    scale = OURS.agree(many(*[(USUAL, USUAL / 4)] * 3))
    assert scale.epoch == 1 and isinstance(scale.length_scale, tuple)
    noise = OURS.agree(many(*[(USUAL, USUAL)] * 3, noise_variance=1e-4))
    assert (noise.epoch, noise.noise_variance) == (1, 0.01)


def test_the_same_scalars_are_agreed_on_once() -> None:
    given = many((0.05, 1.5), (0.06, 1.5), (0.07, 1.5), noise_variance=1e-4)
    later = OURS.agree(given)
    assert later.epoch == 1
    assert later.agree(given) is later


def test_fewer_than_three_senders_do_not_agree() -> None:
    wild = (1e-3, 1e-3)
    assert OURS.agree([]) is OURS
    assert OURS.agree(many(wild, wild)) is OURS
    same = [scalars("one", wild, t_n=t) for t in (10, 20, 30)]
    assert OURS.agree([*same, scalars("two", wild)]) is OURS


def test_of_one_sender_the_most_observations_count() -> None:
    early = [scalars("a", (5.0, 5.0), t_n=10), scalars("b", (5.0, 5.0), t_n=10)]
    late = [scalars(name, (0.05, 0.05), t_n=40) for name in "abc"]
    for order in itertools.permutations([*early, *late]):
        assert OURS.agree(order) == OURS.agree(late)


# Moving


def later_of(federation: Federation, **changes: Any) -> Federation:
    return federation.next_epoch(**{"length_scale": 0.2, "noise_variance": 0.03} | changes)


def helped(federation: Federation = OURS, **options: Any) -> Agent:
    agent = Agent(federation, name="mover", seed=5, **options)
    agent.receive([peer(federation, i).message() for i in range(3)])
    return run(agent, 8)


def test_an_agent_moves_with_its_trials_and_without_old_messages() -> None:
    agent = helped()
    before, old, model = asked(agent), agent.message(), agent._surrogate
    later = later_of(OURS)
    agent.move(later)
    assert agent.federation is later
    assert asked(agent) == before and agent.best is not None
    assert agent._surrogate is model
    assert len(agent.inbox) == 0
    new = agent.message()
    assert (new.epoch, new.t_n, new.sequence) == (1, old.t_n, old.sequence)
    later.check(new)
    assert agent.account.sent.messages == 2


def test_the_new_message_is_that_of_an_agent_that_was_always_there() -> None:
    later = later_of(OURS)
    moved, native = (learn(Agent(f, name="a", seed=1), 12, bowl(OURS)) for f in (OURS, later))
    moved.message()
    moved.move(later)
    assert moved.message() == native.message()


def test_messages_of_two_epochs_do_not_share_their_noise() -> None:
    drawn = Federation(OURS.space, features=M, kind="weights")
    agent = learn(Agent(drawn, name="a", seed=1), 12, bowl(drawn))
    same = drawn.next_epoch()
    first = agent.message()
    agent.move(same)
    assert not np.allclose(first.omega, agent.message().omega)


def test_messages_of_the_old_epoch_are_ignored_and_new_ones_taken() -> None:
    agent, later = helped(), later_of(OURS)
    agent.move(later)
    assert agent.receive([peer(OURS, i).message() for i in range(3)]) == 0
    assert agent.receive([peer(later, i).message() for i in range(3)]) == 3
    run(agent, 3)


def test_a_moved_agent_does_not_start_again() -> None:
    agent = helped()
    agent.move(later_of(OURS))
    assert not agent.starting
    assert run(agent, 3).trials[-1].source == "own"


def test_moving_to_where_it_is_changes_nothing() -> None:
    agent = helped()
    message = agent.message()
    agent.move(OURS.agree([]))
    agent.move(Federation.from_toml(OURS.to_toml()))
    assert len(agent.inbox) == 3 and agent.message() is message


def test_epochs_can_be_skipped() -> None:
    agent = helped()
    agent.move(later_of(later_of(OURS), length_scale=0.5))
    assert agent.message().epoch == 2


@pytest.mark.parametrize(
    ("there", "named"),
    [
        (Federation(cube(3), features=M, epoch=1), "x2"),
        (Federation(cube(2), features=M + 1, epoch=1), "features is 30 here and 31 there"),
        (Federation(cube(2), features=M, seed=1, epoch=1), "seed is 0 here and 1 there"),
        (Federation(cube(2), features=M, kernel="matern52", epoch=1), "kernel is 'se' here"),
        (Federation(cube(2), features=M, kind="belief", epoch=1), "kind is 'compact' here"),
        (Federation(cube(2), features=M, length_scale=0.2), "length_scale is .* here and 0.2"),
    ],
)
def test_it_moves_to_no_other_federation(there: Federation, named: str) -> None:
    agent = helped()
    with pytest.raises(FederationMismatch, match=named):
        agent.move(there)
    assert agent.federation is OURS and len(agent.inbox) == 3


def test_it_does_not_go_back() -> None:
    agent = helped()
    agent.move(later_of(OURS))
    with pytest.raises(FederationMismatch, match=r"length_scale is 0\.2 here"):
        agent.move(OURS)
    with pytest.raises(FederationMismatch, match="epoch is 1 here and 0 there"):
        agent.move(Federation(cube(2), features=M, length_scale=0.2, noise_variance=0.03))


def test_pending_trials_survive_a_move() -> None:
    agent = helped()
    open_ = agent.ask()
    agent.move(later_of(OURS))
    assert agent.tell(open_, 0.5).state == "complete"


@pytest.mark.parametrize(
    ("policy", "kind"),
    [(FTS(), "weights"), (RGPE(), "belief"), (TipsThenPool(), "compact")],
)
def test_a_moved_agent_is_saved_and_goes_on(tmp_path: Path, policy: Any, kind: Any) -> None:
    federation = Federation(cube(2), features=M, kind=kind)
    agent, later = helped(federation, policy=policy), later_of(federation)
    agent.message()
    agent.move(later)
    agent.save(tmp_path / "mover")
    again = Agent.load(tmp_path / "mover")
    assert again.federation == later and len(again.inbox) == 0
    assert again.message() == agent.message()
    for one in (again, agent):
        assert one.receive([peer(later, i).message() for i in range(3)]) == 3
    assert asked(run(again, 3)) == asked(run(agent, 3))
    assert again.scalars() == agent.scalars()


def test_save_and_load_around_a_move_give_the_same_queries(tmp_path: Path) -> None:
    later = later_of(OURS)
    agent = helped()
    agent.save(tmp_path / "before")
    loaded = Agent.load(tmp_path / "before")
    for one in (agent, loaded):
        one.move(later)
        one.receive([peer(later, i).message() for i in range(3)])
    agent.save(tmp_path / "after")
    loaded_again = Agent.load(tmp_path / "after")
    runs = [asked(run(one, 4)) for one in (agent, loaded, loaded_again)]
    assert runs[0] == runs[1] == runs[2]


# All of it


def test_a_federation_agrees_and_goes_on() -> None:
    agents = [wavy_agent(i) for i in range(4)]
    shared = [Scalars.decode(agent.scalars().encode()) for agent in agents]
    sites = [OURS.agree(order) for order in itertools.islice(itertools.permutations(shared), 6)]
    assert len({site.fingerprint for site in sites}) == 1
    later = sites[0]
    assert later.epoch == 1
    assert later.phi.length_scales[0] < OURS.phi.length_scales[0]
    assert later.phi.length_scales[0] < later.phi.length_scales[1]
    for agent in agents:
        agent.move(later)
    messages = [agent.message() for agent in agents]
    assert [agent.receive(messages) for agent in agents] == [3] * 4
