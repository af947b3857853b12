"""The demo: who arrives when, honest numbers, and the whole of it as a person runs it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

import fedbo
from fedbo_paper.demo import figure as demo_figure
from fedbo_paper.demo import hub as demo_hub
from fedbo_paper.demo.demo import MODES, Demo
from fedbo_paper.demo.outcome import Outcome
from fedbo_paper.demo.site import Repeat, play

PATIENCE = 300.0  # seconds; it takes a few on a machine that is not busy


def made_up(scores: np.ndarray) -> Outcome:
    R, _, N, T = scores.shape
    finished = [Repeat(r, scores[r], received=3, nbytes=190) for r in reversed(range(R))]
    return Outcome(Demo(agents=N, trials=T, repeats=R), finished)


def test_each_site_arrives_once_at_each_place() -> None:
    demo = Demo(agents=5, repeats=10, seed=3)
    orders = np.array([demo.order(repeat) for repeat in range(demo.repeats)])
    assert (np.sort(orders, axis=1) == np.arange(5)).all()
    for block in np.split(orders, 2):
        assert (np.sort(block, axis=0) == np.arange(5)[:, None]).all()
    assert set(map(tuple, orders[:5])) != set(map(tuple, orders[5:]))


class TestOutcome:
    """Two sites with eight trials; together is at 0.7 from its second trial on."""

    def scores(self, alone_gets_there: list[int | None]) -> np.ndarray:
        """Make up scores from the trial in which alone gets there in each repeat."""
        scores = np.full((len(alone_gets_there), len(MODES), 2, 8), 0.5)
        scores[:, MODES.index("together"), :, 1:] = 0.7
        for repeat, trial in zip(scores, alone_gets_there, strict=True):
            if trial is not None:
                repeat[MODES.index("alone"), :, trial - 1 :] = 0.8
        return scores

    ALL = ", alone needed more than those 3 trials:"
    MIXED = ", alone needed more than those 3 trials; over all repeats it needed"
    CHANCE = " This may be chance: try more --repeats."

    @pytest.mark.parametrize(
        ("alone_gets_there", "headline", "doubt"),
        [
            # the mean of alone is 0.5 + 0.3 × 5 / 6 from trial 7 on
            ([5, 6, 7, 7, 7, None], "Together, sites reached in 3 trials what took them 7 alone.",
             f"each of the 6 repeats{ALL} between 5 and more than 8."),
            ([1, 2, 8, 8], "Together, sites reached in 3 trials what took them 8 alone.",
             f"2 of 4 repeats{MIXED} between 1 and 8.{CHANCE}"),
            ([1, 2, 2, 3], "No gain: what sites reached together in 3 trials took 2 trials alone.",
             f"0 of 4 repeats{MIXED} between 1 and 3.{CHANCE}"),
            ([None], "Together, sites reached in 3 trials what they did not in 8 alone.",
             f"1 of 1 repeat{ALL} more than 8.{CHANCE}"),
        ],
    )  # fmt: skip
    def test_what_was_gained_and_how_sure_that_is(
        self, alone_gets_there: list[int | None], headline: str, doubt: str
    ) -> None:
        outcome = made_up(self.scores(alone_gets_there))
        assert outcome.headline() == headline
        assert outcome.doubt() == f"In {doubt}"

    def test_as_fast_alone_is_no_gain(self) -> None:
        assert made_up(np.full((2, 2, 2, 8), 0.5)).headline().startswith("No gain")

    def test_sites_ahead_and_behind(self) -> None:
        scores = self.scores([None, 4])
        scores[0, MODES.index("alone"), 0] = 0.7  # this site is level
        outcome = made_up(scores)
        assert outcome.shares(1) == (0.0, 0.25)
        assert outcome.shares(3) == (0.75, 0.0)
        assert outcome.shares(8) == (0.25, 0.5)

    @pytest.mark.parametrize("alone_gets_there", [1, 6, None])
    def test_picture(self, alone_gets_there: int | None, tmp_path: Path) -> None:
        outcome = made_up(self.scores([alone_gets_there] * 2))
        figure = demo_figure.draw(outcome, tmp_path / "demo.png")
        texts = [text.get_text().strip() for text in figure.axes[0].texts]
        saved = {1: [], 6: ["", "3 trials saved"], None: ["", "at least 6 trials saved"]}
        assert texts == saved[alone_gets_there]
        assert figure.get_suptitle() == outcome.headline()


def test_sites_hear_those_that_came_before_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repeat through the hub gives the scores of the same agents without any hub."""
    monkeypatch.setenv("FEDBO_STATE", "")  # `play` sets these
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("no_proxy", "")
    demo = Demo(agents=3, trials=5, repeats=2, seed=4)
    with demo_hub.serving(demo, tmp_path) as hub:
        repeat = play(demo, 1, hub.address, hub.invitations[1], tmp_path)
    assert (repeat.number, repeat.received) == (1, 3)
    assert 0 < repeat.nbytes < 250
    federation, images, messages = demo.federation(1), demo.images(), []
    for site in demo.order(1):
        own = {"name": demo.sites[site], "seed": demo.agent_seed(1, site)}
        together = fedbo.Agent(federation, **own)
        together.receive(messages)
        agents = {"alone": fedbo.Agent(federation, fedbo.EI(), **own), "together": together}
        for mode, agent in agents.items():
            for _ in range(demo.trials):
                trial = agent.ask()
                agent.tell(trial, images[site](trial.params))
            expected = [trial.score for trial in agent.trials]
            assert repeat.scores[MODES.index(mode), site].tolist() == expected
        messages.append(together.message())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "sent"),
    [("", None), ("stopped", signal.SIGINT), ("stopped", signal.SIGTERM), ("stay", signal.SIGTERM)],
)
def test_as_a_person_runs_it(how: str, sent: signal.Signals | None, tmp_path: Path) -> None:
    """A signal goes to one process only, as from `kill`; no process is left."""
    (tmp_path / "tmp").mkdir()
    is_stopped, end = how == "stopped", time.monotonic() + PATIENCE
    options = ["--repeats", "100" if is_stopped else "2", "--out", "demo.png"]
    options += ["--stay"] if how == "stay" else []
    started = subprocess.Popen(
        [*(sys.executable, "-m", "fedbo", "demo", "--agents", "3", "--trials", "5"), *options],
        cwd=tmp_path,
        env=os.environ
        | {
            "PYTHONPATH": str(Path(fedbo.__file__).parents[1]),
            "COLUMNS": "80",
            "TMPDIR": str(tmp_path / "tmp"),
            "HTTP_PROXY": "http://127.0.0.1:9",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    if sent:
        awaited = "demo.png" if how == "stay" else "tmp/*/1-site-*/ledger.jsonl"
        while not any(tmp_path.glob(awaited)):
            assert started.poll() is None and time.monotonic() < end
            time.sleep(0.05)
        time.sleep(1.0 if how == "stay" else 0.0)  # the picture is being written
        started.send_signal(sent)
    out, errors = started.communicate(timeout=PATIENCE)
    with pytest.raises(ProcessLookupError):  # a session is empty soon after its first process
        while time.monotonic() < end:
            os.killpg(started.pid, 0)
            time.sleep(0.05)
    assert started.returncode == (130 if is_stopped else 0), errors
    assert errors == ""
    assert max(map(len, out.splitlines())) <= 80
    assert "Log in with:    fedbo-m-" in out
    assert not any((tmp_path / "tmp").iterdir())
    if is_stopped:
        assert "Stopped after" in out
    else:
        assert len(out.splitlines()) < 40
        assert "in 3 trials" in out and "2 repeats, alone needed" in out
        assert "6 messages went to the hub" in out and "6 messages came from it" in out
        assert np.ptp(imread(tmp_path / "demo.png")[..., :3]) > 0.5
