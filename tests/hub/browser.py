"""A hub in a process of its own, and a browser that looks at it."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, sync_playwright

from fedbo.exchange.hub.wire import MEDIA_TYPE
from fedbo.federation import Federation
from fedbo.hub import admin
from fedbo.hub.database import begin, open_database
from fedbo.hub.settings import Settings
from fedbo.message import Message
from fedbo.space import Float

M = 20
AGREED = Federation({"x": Float(0, 1), "y": Float(0, 1)}, features=M, seed=3, kind="weights")
PATIENCE = 60.0  # seconds
_ARGUMENTS = (
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-domain-reliability",
    "--disable-sync",
    "--no-default-browser-check",
    "--no-first-run",
    "--metrics-recording-only",
)
_SERVE = """
import os
from fedbo.hub.serve import Stage
from fedbo.hub.settings import Settings
raise SystemExit(Stage(Settings.from_environ(os.environ)).run())
"""
#: What Chromium says of every answer with such a status, also where the page expects it.
_EXPECTED = re.compile(r"Failed to load resource: the server responded with a status of 40[14]")
_OFFLINE = re.compile("Failed to load resource: net::ERR_")


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser; without one the test is skipped."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        missing = "the page needs a browser: apt-get install chromium"
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=_ARGUMENTS)
        yield browser
        browser.close()


class HubProcess:
    """A hub on loopback that can be stopped and started again at the same address.

    Args:
        folder: Where its database is.
    """

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{port}"
        self.settings = Settings(db=f"sqlite:///{folder}/hub.db", port=port, rate=0.0, failures=0)
        self._log = folder / "hub.log"
        self.engine = open_database(self.settings.db)
        self.http = httpx.Client(base_url=self.address, timeout=PATIENCE, trust_env=False)
        with begin(self.engine) as connection:
            self.operator = admin.new_operator(connection, "ann", actor=admin.COMMAND_LINE)
        self.start()

    def start(self) -> None:
        environ = {**os.environ, **self.settings.to_environ()}
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _SERVE], env=environ, stdout=log, stderr=log
            )
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and self._process.poll() is None:
            try:
                if self.http.get("/readyz").is_success:
                    return
            except httpx.TransportError:
                time.sleep(0.1)
        raise RuntimeError(f"the hub did not start: {self._log.read_text()}")

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE)

    def close(self) -> None:
        self.stop()
        self.http.close()
        self.engine.dispose()


class Site:
    """A federation at a hub, with members that publish over HTTP.

    Args:
        hub: The hub.
        name: Of the federation.
        *members: Names of its members.
        agreed: What they agree on.
    """

    def __init__(
        self, hub: HubProcess, name: str, *members: str, agreed: Federation = AGREED
    ) -> None:
        self.hub, self.name = hub, name
        with begin(hub.engine) as connection:
            admin.create_federation(connection, name, agreed, actor=admin.COMMAND_LINE)
            invited = admin.invite(connection, name, uses=1000, actor=admin.COMMAND_LINE)
            secret = invited.invitation.secret
            self.tokens = {
                member: admin.enrol(connection, secret, member).token for member in members
            }
            admin.drop_invitation(connection, name, invited.id, actor=admin.COMMAND_LINE)

    def ask(self, method: str, path: str, member: str, **given: Any) -> httpx.Response:
        """Send a request as a member."""
        headers = {"Authorization": f"Bearer {self.tokens[member]}", **given.pop("headers", {})}
        path = f"/v1/federations/{self.name}/{path}"
        answer = self.hub.http.request(method, path, headers=headers, **given)
        answer.raise_for_status()
        return answer

    def publish(self, sender: str, sequence: int = 1, trials: int = 9, seed: int = 0) -> None:
        """Publish a message; those with the same seed are alike."""
        omega = np.random.default_rng(seed).standard_normal(M)
        omega += 0.1 * np.random.default_rng([*sender.encode()]).standard_normal(M)
        message = Message.of_weights(
            omega,
            fingerprint=AGREED.fingerprint,
            epoch=0,
            sender=sender,
            sequence=sequence,
            t_n=trials,
        )
        headers = {"Content-Type": MEDIA_TYPE}
        member = sender.partition("/")[0]
        self.ask("PUT", "messages", member, content=message.encode(), headers=headers)


class Watch:
    """Sees what a page does: no request may leave the hub, and nothing may go wrong.

    Args:
        context: The pages to watch.
        address: The address of the hub.
    """

    def __init__(self, context: BrowserContext, address: str) -> None:
        self._host = urlsplit(address).netloc
        self.faults: list[str] = []
        self.may_be_offline = False
        context.on("request", self._request)
        context.on("page", self._page)
        context.add_init_script(
            "addEventListener('securitypolicyviolation', (event) => "
            "console.error('policy: ' + event.violatedDirective + ' ' + event.blockedURI))"
        )

    def _page(self, page: Page) -> None:
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        page.on("dialog", lambda dialog: self.faults.append(f"dialog: {dialog.message}"))

    def _request(self, request: Any) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in ("data", "blob") and parts.netloc != self._host:
            self.faults.append(f"request to {request.url}")

    def _console(self, message: ConsoleMessage) -> None:
        is_expected = _EXPECTED.match(message.text) or (
            self.may_be_offline and _OFFLINE.match(message.text)
        )
        if message.type in ("error", "warning") and not is_expected:
            self.faults.append(f"console: {message.text}")
