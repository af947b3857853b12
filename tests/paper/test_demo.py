"""The demo: a fair split, two modes that differ in one thing, honest numbers, a picture."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread
from rich.console import Console

from fedbo.table import Table
from fedbo_paper.demo import figure as demo_figure
from fedbo_paper.demo import screen as demo_screen
from fedbo_paper.demo.demo import MODES, N_INITIAL, Board, Demo, Outcome, Run, play, play_all
from fedbo_paper.harness.averages import mean_and_error
from fedbo_paper.problems import digits

pytestmark = pytest.mark.slow

SMALL = Demo(agents=6, trials=6, repeats=2)


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    return [
        Run(repeat=r, mode=mode, table=play(SMALL, r, mode))
        for r in range(SMALL.repeats)
        for mode in MODES
    ]


@pytest.fixture(scope="module")
def outcome(runs: list[Run]) -> Outcome:
    return Outcome(SMALL, runs)


def made_up(best: np.ndarray) -> Outcome:
    """An outcome with these best scores, (R, 2, N, T)."""
    R, _, N, T = best.shape
    demo = Demo(agents=N, trials=T, repeats=R)
    runs = []
    for r in range(R):
        for m, mode in enumerate(MODES):
            columns = {
                "agent": np.repeat(demo.names, T),
                "source": np.tile(["initial"] * N_INITIAL + ["own"] * (T - N_INITIAL), N),
                "best": best[r, m].ravel(),
            }
            runs.append(Run(repeat=r, mode=mode, table=Table(columns)))
    return Outcome(demo, runs)


class TestDigits:
    @pytest.mark.parametrize("agents", [1, 2, 10, digits.MOST])
    def test_every_image_is_dealt_once(self, agents: int) -> None:
        hands = digits.deal(agents, seed=3)
        X = np.concatenate([hand.pixels for hand in hands])
        everything = digits.deal(1, seed=0)[0].pixels
        assert np.array_equal(np.sort(X, axis=0), np.sort(everything, axis=0))
        assert sum(hand.counts for hand in hands).sum() == digits.IMAGES

    def test_uneven_in_size_and_in_mix(self) -> None:
        hands = digits.deal(10, seed=0)
        sizes = [len(hand) for hand in hands]
        assert max(sizes) > 7 * min(sizes)
        shares = np.array([hand.counts / len(hand) for hand in hands])
        # with the same mix for all, the largest share of a digit would be near 0.1 everywhere
        assert np.median(shares.max(axis=1)) > 0.2

    def test_the_seed_decides(self) -> None:
        a, same, other = (digits.deal(5, seed)[0] for seed in (1, 1, 2))
        assert np.array_equal(a.pixels, same.pixels)
        assert not np.array_equal(a.counts, other.counts)

    def test_score_is_the_accuracy_on_the_other_half(self) -> None:
        from sklearn.svm import SVC

        hand = digits.deal(digits.MOST, seed=0)[0]
        params = {"C": 10.0, "gamma": 0.05}
        train, validate = hand.halves
        assert set(train) | set(validate) == set(range(len(hand)))
        assert not set(train) & set(validate)
        svm = SVC(**params).fit(hand.pixels[train], hand.digits[train])
        assert hand(params) == svm.score(hand.pixels[validate], hand.digits[validate])

    def test_is_computed_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        hand = digits.deal(digits.MOST, seed=0)[0]
        score = hand({"C": 1.0, "gamma": 0.1})
        monkeypatch.setattr(hand, "_accuracy", None)
        assert hand({"gamma": 0.1, "C": 1.0}) == score

    @pytest.mark.parametrize("agents", [0, digits.MOST + 1])
    def test_too_few_or_many_agents(self, agents: int) -> None:
        with pytest.raises(ValueError, match=f"agents is {agents}, expected 1 to 24"):
            digits.deal(agents, seed=0)


class TestRuns:
    def test_modes_start_alike_and_only_together_asks_peers(self, outcome: Outcome) -> None:
        table = outcome.table
        for repeat in range(SMALL.repeats):
            alone, together = (table.where(repeat=repeat, mode=mode) for mode in MODES)
            for name in ("agent", "param_C", "param_gamma", "score"):
                initial = [t.where(iteration=0)[name] for t in (alone, together)]
                assert np.array_equal(*initial)
            assert set(alone["source"]) == {"initial", "own"}
            assert not alone["parameters_received"].any()
            # a message of M = 100 from each of the five others in every iteration
            assert together["parameters_received"].max() == 500 * (SMALL.trials - N_INITIAL)
        assert "peer" in table["source"]

    def test_repeats_differ_and_the_same_one_does_not(self, runs: list[Run]) -> None:
        again = play(SMALL, 0, "together")
        assert again == runs[1].table
        assert not np.array_equal(runs[1].table["param_C"], runs[3].table["param_C"])

    def test_board_has_the_scores(self) -> None:
        demo = Demo(agents=6, trials=4, repeats=2)
        with Board.create(demo) as board:
            assert board.done == 0
            outcome = Outcome(demo, [*play_all(demo, board, jobs=1)])
            assert board.done == np.prod(demo.shape)
            best, repeats = board.paired_best(demo.trials)
            assert np.array_equal(np.maximum.accumulate(board.scores, axis=-1), outcome.best)
        assert repeats == demo.repeats
        assert best == pytest.approx(outcome.curves[..., -1].mean(axis=0))

    def test_live_scores_are_of_repeats_in_which_both_got_there(self) -> None:
        with Board.create(SMALL) as board:
            board.scores[0, 0] = 0.5
            assert board.paired_best(3)[1] == 0
            board.scores[0, 1, :, :4] = 0.75
            board.scores[1, :, 0] = 1.0
            best, repeats = board.paired_best(4)
            assert (best.tolist(), repeats) == ([0.5, 0.75], 1)
            assert board.paired_best(5)[1] == 0

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


class TestOutcome:
    def test_counts_only_repeats_finished_in_both_modes(self, runs: list[Run]) -> None:
        unfinished = Outcome(SMALL, [runs[3], runs[0], runs[2]])
        assert unfinished.repeats == 1
        assert set(unfinished.table["repeat"]) == {1}
        assert Outcome(SMALL, runs[:1]).repeats == 0

    def test_numbers_against_a_loop(self, outcome: Outcome) -> None:
        table = outcome.table
        for r in range(SMALL.repeats):
            for n, name in enumerate(SMALL.names):
                alone, together = (table.where(repeat=r, mode=m, agent=name) for m in MODES)
                goal, t = alone["score"].max(), np.inf
                for trial, score in enumerate(together["score"], 1):
                    t = min(t, trial) if score >= goal else t
                assert outcome.catching_up[r, n] == t
                assert outcome.best[r, 1, n, -1] == together["score"].max()
                assert outcome.from_peers[r, n].sum() == (together["source"] == "peer").sum()

    def test_standard_error_is_over_repeats(self) -> None:
        values = np.random.default_rng(0).normal(size=(7, 3))
        mean, error = mean_and_error(values)
        assert mean == pytest.approx(values.mean(axis=0))
        assert error == pytest.approx(np.sqrt(values.var(axis=0, ddof=1) / 7))
        assert np.isnan(mean_and_error(values[:1])[1]).all()


class TestReport:
    def test_says_ahead(self) -> None:
        best = np.empty((3, 2, 2, 5))
        best[:, 0] = [0.1, 0.2, 0.3, 0.4, 0.5]
        best[:, 1] = [0.1, 0.2, 0.3, 0.6, 0.7]
        best[:, 1, :, 3:] += np.array([-0.01, 0.0, 0.01])[:, None, None]
        text = demo_screen.summary(made_up(best))
        assert "0.7000 together and 0.5000 alone: together is ahead by 0.2000 ± 0.0058." in text
        assert "Averaged over trials 4 to 5, together is ahead by 0.2000 ± 0.0058." in text
        assert "reached the final mean of alone after 4 trials" in text
        assert "one standard error over 3 repeats" in text

    def test_says_behind_and_unclear(self) -> None:
        best = np.full((2, 2, 2, 5), 0.5)
        best[:, 0] += np.array([0.0, 0.1])[:, None, None]
        text = demo_screen.summary(made_up(best))
        assert "together is behind by 0.0500 ± 0.0500 (no clear difference)." in text
        assert "did not reach the final mean of alone in 5 trials" in text

    def test_one_repeat_has_no_error(self) -> None:
        text = demo_screen.summary(made_up(np.full((1, 2, 2, 5), 0.5)))
        assert "ahead by 0.0000." in text
        assert "One repeat gives no standard error" in text
        assert "±" not in text

    def test_table_fits_into_80_columns(self, outcome: Outcome) -> None:
        console = Console(width=80, file=io.StringIO(), record=True)
        demo_screen.report(console, outcome)
        text = console.export_text()
        assert "…" not in text
        for name in SMALL.names:
            assert name in text

    def test_never_as_good(self) -> None:
        best = np.full((1, 2, 2, 5), 0.5)
        best[:, 0, 0] = 0.75
        assert np.isinf(made_up(best).catching_up[0, 0])
        assert made_up(best).catching_up[0, 1] == 1

    def test_live_display_in_a_terminal(self) -> None:
        console = Console(width=80, file=io.StringIO(), force_terminal=True)
        demo = Demo(agents=5, trials=4, repeats=1)
        outcome = demo_screen.run(console, demo, jobs=1)
        text = console.file.getvalue()
        assert outcome.repeats == 1
        assert "40/40" in text
        assert "mean best accuracy" in text

    def test_ctrl_c_counts_what_is_finished(
        self, runs: list[Run], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupted(demo: Demo, board: Board, jobs: int) -> Iterator[Run]:
            board.scores[0] = board.scores[1, 0] = 0.5
            yield from runs[:3]
            raise KeyboardInterrupt

        monkeypatch.setattr(demo_screen, "play_all", interrupted)
        console = Console(width=80, file=io.StringIO())
        outcome = demo_screen.run(console, SMALL, jobs=1)
        assert outcome.repeats == 1
        assert "Stopped after 108 of 144 trials." in (text := console.file.getvalue())
        assert "1 of 2 repeats" in text


class TestPicture:
    @pytest.mark.parametrize("repeats", [1, 2])
    def test_shows_something_in_both_panels(
        self, runs: list[Run], repeats: int, tmp_path: Path
    ) -> None:
        demo_figure.draw(Outcome(SMALL, runs[: 2 * repeats]), tmp_path / "demo.png")
        pixels = imread(tmp_path / "demo.png")[..., :3]
        for half in np.array_split(pixels, 2, axis=1):
            red, _, blue = np.moveaxis(half, -1, 0)
            assert (red > blue + 0.2).mean() > 0.002
            assert (blue > red + 0.2).mean() > 0.002
