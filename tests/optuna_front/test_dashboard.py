"""Optuna's dashboard shows where a trial's query came from, and whose messages it used."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from wsgiref.simple_server import WSGIRequestHandler, make_server

import optuna
import pytest
from playwright.sync_api import Browser, expect

from fedbo import Federation, Float
from fedbo.exchange import MemoryExchange
from fedbo.optuna import FederatedSampler

pytestmark = pytest.mark.slow


class Quiet(WSGIRequestHandler):
    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def dashboard(tmp_path: Path) -> Iterator[str]:
    """The dashboard of two sites, of which the second begins with the tip of the first."""
    federation, exchange = Federation({"x": Float(0, 1)}), MemoryExchange()
    storage = f"sqlite:///{tmp_path / 'site.db'}"
    for name in ("site-a", "site-b"):
        sampler = FederatedSampler(federation, exchange, name=name, seed=0)
        study = optuna.create_study(storage=storage, sampler=sampler, direction="maximize")
        study.optimize(lambda trial: -((trial.suggest_float("x", 0, 1) - 0.3) ** 2), n_trials=8)
        sampler.flush(60.0)
    app = pytest.importorskip("optuna_dashboard").wsgi(storage)
    with make_server("127.0.0.1", 0, app, handler_class=Quiet) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/dashboard"
        server.shutdown()
        thread.join()


def test_a_trial_shows_its_source_and_its_peers(dashboard: str, browser: Browser) -> None:
    page = browser.new_page()
    page.goto(f"{dashboard}/studies/2/trials?numbers=0")
    for shown in ("fedbo:source tip", "fedbo:peers site-a 100%"):
        expect(page.get_by_text(shown)).to_be_visible(timeout=60_000)
    page.close()
