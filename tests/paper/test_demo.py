"""The demo: who arrives when, honest numbers, what the terminal and the picture show."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread
from rich.console import Console
from scipy.stats import ttest_1samp

from fedbo_paper.demo import figure as demo_figure
from fedbo_paper.demo import screen as demo_screen
from fedbo_paper.demo.demo import MODES, Demo
from fedbo_paper.demo.outcome import Outcome
from fedbo_paper.demo.site import Left, Tried

SMALL = Demo(agents=4, trials=7, repeats=6)


def reports(demo: Demo, scores: np.ndarray) -> list[tuple[int, Tried]]:
    """What the sites report if these are their scores, (R, 2, N, T)."""
    return [
        (
            n,
            Tried(r, MODES[m], t + 1, {"C": 1.0, "gamma": 0.1}, float(scores[r, m, n, t]), "own"),
        )
        for r, m, n, t in np.ndindex(*scores.shape)
        if not np.isnan(scores[r, m, n, t])
    ]


def made_up(scores: np.ndarray) -> Outcome:
    R, _, N, T = scores.shape
    demo = Demo(agents=N, trials=T, repeats=R)
    return Outcome(demo, reports(demo, scores))


def random_scores(demo: Demo = SMALL, lead: float = 0.1) -> np.ndarray:
    shape = (demo.repeats, len(MODES), demo.agents, demo.trials)
    scores = np.random.default_rng(0).uniform(0.3, 0.8, shape)
    scores[:, MODES.index("together")] += lead
    return scores


class TestDemo:
    @pytest.mark.parametrize(
        ("given", "complaint"),
        [
            ({"agents": 1}, "agents is 1, expected 2 to 24"),
            ({"trials": 3}, "trials is 3, expected 4 to 1000: 3 are initial points"),
            ({"repeats": 0}, "repeats is 0, expected 1 to 1000"),
            ({"seed": -1}, "seed is -1, expected 0 to 4294967295"),
        ],
    )
    def test_what_cannot_be_run(self, given: dict[str, int], complaint: str) -> None:
        with pytest.raises(ValueError, match=complaint):
            Demo(**given)

    def test_each_site_arrives_once_at_each_place(self) -> None:
        demo = Demo(agents=5, repeats=10, seed=3)
        orders = np.array([demo.order(repeat) for repeat in range(demo.repeats)])
        assert (np.sort(orders, axis=1) == np.arange(5)).all()
        for block in np.split(orders, 2):
            assert (np.sort(block, axis=0) == np.arange(5)[:, None]).all()
        assert set(map(tuple, orders[:5])) != set(map(tuple, orders[5:]))


class TestOutcome:
    def test_only_finished_repeats_count(self) -> None:
        scores = random_scores()
        scores[0, 1, 3, -1] = scores[4, 0, 0, 0] = np.nan
        outcome = Outcome(SMALL, reports(SMALL, scores))
        assert outcome.repeats == 4
        assert set(outcome.table["repeat"]) == {1, 2, 3, 5}
        assert Outcome(SMALL, []).repeats == 0

    def test_numbers_against_a_loop(self) -> None:
        scores = random_scores()
        outcome = Outcome(SMALL, reports(SMALL, scores))
        alone, together = MODES.index("alone"), MODES.index("together")
        for t in range(1, SMALL.trials + 1):
            leads = [
                np.mean(
                    [
                        max(scores[r, together, n, :t]) - max(scores[r, alone, n, :t])
                        for n in range(SMALL.agents)
                    ]
                )
                for r in range(SMALL.repeats)
            ]
            lead = outcome.lead(t)
            assert lead.value == pytest.approx(np.mean(leads))
            interval = ttest_1samp(leads, 0.0).confidence_interval(0.95)
            assert (lead.low, lead.high) == pytest.approx(tuple(interval))

    def test_leads_by_place(self) -> None:
        scores = np.full((SMALL.repeats, len(MODES), SMALL.agents, SMALL.trials), 0.9)
        scores[..., 0] = 0.5
        for r in range(SMALL.repeats):
            for place, site in enumerate(SMALL.order(r)):
                scores[r, MODES.index("together"), site, 0] += 0.1 * place
        outcome = Outcome(SMALL, reports(SMALL, scores))
        found = [effect.value for effect in outcome.by_peers()]
        assert found == pytest.approx([0.0, 0.02, 0.04, 0.06])  # means of trials 1 to 5

    def test_catching_up(self) -> None:
        scores = np.full((2, 2, 2, 6), 0.5)
        scores[:, 1, :, 1:] = 0.8
        scores[:, 0, :, 4] = 0.9
        assert made_up(scores).catches_up(2) == 5
        scores[:, 0] = 0.7
        assert made_up(scores).catches_up(2) is None

    def test_table_has_every_trial(self) -> None:
        scores = random_scores()
        table = Outcome(SMALL, reports(SMALL, scores)).table
        assert table.height == SMALL.total
        first, second = SMALL.order(2)[:2]
        for site, peers in ((first, 0), (second, 1)):
            rows = table.where(repeat=2, mode="together", site=SMALL.sites[site])
            assert rows["score"].tolist() == scores[2, 1, site].tolist()
            assert set(rows["peers"]) == {peers}
        assert set(table.where(mode="alone")["peers"]) == {0}


class TestReport:
    def test_says_ahead(self) -> None:
        scores = np.full((4, 2, 2, 8), 0.5)
        scores[:, 1, :, 1:] = 0.7
        scores[:, 1, :, 1:] += np.array([-0.03, -0.01, 0.01, 0.03])[:, None, None]
        scores[:, 0, :, 6:] = 0.75
        text = demo_screen.summary(made_up(scores))
        assert text.startswith(
            "After 5 trials, together is ahead of alone by 0.200 ± 0.041. To get as far, alone "
            "needed 7 trials. After 8 trials, together is behind alone by 0.050 ± 0.041. "
        )
        assert "95 % interval of a paired difference over 4 repeats" in text
        scores[:, 0, :, 6:] = 0.5
        assert "alone needed more than 8 trials." in demo_screen.summary(made_up(scores))

    def test_live_display(self) -> None:
        console = Console(width=80, file=io.StringIO(), record=True)
        watch = demo_screen.Watch(SMALL, console)
        console.print(watch)
        assert console.export_text().count("waits for its turn") == SMALL.agents
        scores = random_scores()
        scores[2:] = np.nan
        last = [(SMALL.trials, "together")]
        for site, each in reports(SMALL, scores):
            watch.note(site, each)
            if (each.trial, each.mode) in last and (each.repeat, site) != (1, 0):
                watch.note(site, Left(each.repeat, 3, 555))
        console.print(watch)
        text = console.export_text()
        assert "…" not in text
        assert f"{SMALL.total // 3}/{SMALL.total}" in text
        assert "7 messages" in watch.traffic and "555 bytes" in watch.traffic


class TestPicture:
    @pytest.mark.parametrize("repeats", [1, 6])
    def test_shows_something_in_each_panel(self, repeats: int, tmp_path: Path) -> None:
        outcome = made_up(random_scores(Demo(agents=4, trials=7, repeats=repeats)))
        demo_figure.draw(outcome, tmp_path / "demo.png")
        pixels = imread(tmp_path / "demo.png")[..., :3]
        assert (pixels[0, 0] == 1.0).all()
        for third in np.array_split(pixels, 3, axis=1):
            red, _, blue = np.moveaxis(third, -1, 0)
            assert (np.abs(red - blue) > 0.2).mean() > 0.001
