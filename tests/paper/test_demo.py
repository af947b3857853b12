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
from scipy.stats import ttest_1samp

import fedbo
from fedbo_paper.demo import hub as demo_hub
from fedbo_paper.demo import screen as demo_screen
from fedbo_paper.demo.demo import MODES, Demo
from fedbo_paper.demo.outcome import Outcome
from fedbo_paper.demo.site import Repeat, play

SMALL = Demo(agents=4, trials=7, repeats=6)
PATIENCE = 300.0  # seconds; it takes a few on a machine that is not busy


def made_up(scores: np.ndarray) -> Outcome:
    R, _, N, T = scores.shape
    finished = [Repeat(r, scores[r], received=3, nbytes=190) for r in reversed(range(R))]
    return Outcome(Demo(agents=N, trials=T, repeats=R), finished)


def random_scores(demo: Demo = SMALL) -> np.ndarray:
    shape = (demo.repeats, len(MODES), demo.agents, demo.trials)
    scores = np.random.default_rng(0).uniform(0.3, 0.8, shape)
    scores[:, MODES.index("together")] += 0.1
    return scores


def test_each_site_arrives_once_at_each_place() -> None:
    demo = Demo(agents=5, repeats=10, seed=3)
    orders = np.array([demo.order(repeat) for repeat in range(demo.repeats)])
    assert (np.sort(orders, axis=1) == np.arange(5)).all()
    for block in np.split(orders, 2):
        assert (np.sort(block, axis=0) == np.arange(5)[:, None]).all()
    assert set(map(tuple, orders[:5])) != set(map(tuple, orders[5:]))


class TestOutcome:
    def test_numbers_against_a_loop(self) -> None:
        scores = random_scores()
        outcome = made_up(scores)
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
        leads = [effect.value for effect in made_up(scores).by_peers()]
        assert leads == pytest.approx([0.0, 0.02, 0.04, 0.06])  # means of trials 1 to 5

    def test_summary_says_who_is_ahead_and_when_alone_gets_there(self) -> None:
        scores = np.full((4, 2, 2, 8), 0.5)
        scores[:, 1, :, 1:] = 0.7
        scores[:, 1, :, 1:] += np.array([-0.03, -0.01, 0.01, 0.03])[:, None, None]
        scores[:, 0, :, 6:] = 0.75
        assert demo_screen.summary(made_up(scores)).startswith(
            "After 5 trials, together is ahead of alone by 0.200 ± 0.041. To get as far, alone "
            "needed 7 trials. After 8 trials, together is behind alone by 0.050 ± 0.041. "
        )
        scores[:, 0, :, 6:] = 0.5
        assert "alone needed more than 8 trials." in demo_screen.summary(made_up(scores))


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
@pytest.mark.parametrize("is_stopped", [False, True])
def test_as_a_person_runs_it(is_stopped: bool, tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    options = ["--repeats", "100" if is_stopped else "2", "--out", "demo.png"]
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
    )
    if is_stopped:
        end = time.monotonic() + PATIENCE
        while not any(tmp_path.glob("tmp/*/1-site-*/ledger.jsonl")):
            assert started.poll() is None and time.monotonic() < end
            time.sleep(0.05)
        started.send_signal(signal.SIGINT)
    out, errors = started.communicate(timeout=PATIENCE)
    assert started.returncode == (130 if is_stopped else 0), errors
    assert errors == ""
    assert max(map(len, out.splitlines())) <= 80
    assert "Log in with:    fedbo-o-" in out
    assert not any((tmp_path / "tmp").iterdir())
    if is_stopped:
        assert "Stopped after" in out
    else:
        assert "6 messages went to the hub" in out and "6 messages came from it" in out
        assert np.ptp(imread(tmp_path / "demo.png")[..., :3]) > 0.5
