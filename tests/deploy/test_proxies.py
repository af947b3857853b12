"""The proxies in front of a hub, as deploy/ sets them up: their files are valid, and slow strangers
keep no member out.

Everything is on this machine. Only addresses, ports, users and folders differ from the files.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shutil
import socket
import ssl
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import httpx2
import pytest
from contracts.authority import Certified, certify
from contracts.hub import HubProcess
from contracts.hub_rows import message
from contracts.liar import free_port

from fedbo.exchange.hub.wire import MEDIA_TYPE

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PROGRAMS = (*os.get_exec_path(), "/usr/sbin", *map(str, ROOT.glob(".proxies/usr/*bin")))
Name = Literal["caddy", "nginx"]
NAMES: tuple[Name, ...] = ("caddy", "nginx")
STRANGERS = 1100
SECONDS = 5.0  # for which a member makes requests beside them
PATIENCE = 60.0

STARTS = {
    "half headers": "POST /v1/session HTTP/1.1\r\nHost: {host}\r\nX-Slow: ",
    "half bodies": (
        "POST /v1/session HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        'Content-Length: 1000\r\n\r\n{{"token": "'
    ),
}


class Proxy(NamedTuple):
    """How a proxy is started, and where it then is."""

    validate: list[str | Path]
    run: list[str | Path]
    environ: dict[str, str]
    port: int
    authority: Path | None  # of its certificate; without one, it speaks HTTP

    @property
    def address(self) -> str:
        return f"{'https' if self.authority else 'http'}://127.0.0.1:{self.port}"


def program(name: Name) -> str:
    if (found := shutil.which(name, path=os.pathsep.join(PROGRAMS))) is None:
        pytest.skip(f"{name} is not here: apt-get install {name}, or make proxies")
    return found


def proxy(name: Name, hub_port: int, folder: Path) -> Proxy:
    return {"caddy": caddy, "nginx": nginx}[name](program(name), hub_port, folder)


def caddy(found: str, hub_port: int, folder: Path) -> Proxy:
    """Caddy without TLS, since it would ask Let's Encrypt for a certificate."""
    port = free_port()
    version = subprocess.run([found, "version"], capture_output=True, text=True).stdout
    numbers = tuple(map(int, re.findall(r"\d+", version)[:3]))
    environ = os.environ | {
        "HUB": f"127.0.0.1:{hub_port}",
        "HUB_NAME": f"http://127.0.0.1:{port}",
        "HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder),
        "XDG_DATA_HOME": str(folder),
    }
    if numbers < (2, 6, 3):
        environ["BUFFERING"] = "buffer_requests"
    path = folder / "Caddyfile"
    text = (DEPLOY / "Caddyfile").read_text()
    path.write_text(text.replace("\n{\n", "\n{\n\tadmin off\n", 1))  # its port is taken, perhaps
    config = ["--adapter", "caddyfile", "--config", path]
    return Proxy([found, "validate", *config], [found, "run", *config], environ, port, None)


def nginx(found: str, hub_port: int, folder: Path) -> Proxy:
    port, made = free_port(), certify(folder)
    text = (DEPLOY / "nginx.conf").read_text()
    for ours, theirs in _replacements(port, hub_port, folder, made).items():
        assert ours in text
        text = text.replace(ours, theirs)
    path = folder / "nginx.conf"
    path.write_text(text)
    start: list[str | Path] = [found, "-p", folder, "-e", "stderr", "-c", path]
    run = [*start, "-g", "daemon off;"]
    return Proxy([*start, "-t"], run, {**os.environ}, port, made.authority)


def _replacements(port: int, hub_port: int, folder: Path, made: Certified) -> dict[str, str]:
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    folders = "".join(f"    {kind}_temp_path {folder}/{kind};\n" for kind in kinds)
    return {
        "user www-data;\n": "user root;\n" if os.geteuid() == 0 else "",
        "/run/nginx.pid": f"{folder}/nginx.pid",
        "http {\n": f"http {{\n{folders}",
        "127.0.0.1:8765": f"127.0.0.1:{hub_port}",
        "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
        "        listen [::]:443 ssl;\n": "",  # not every machine has IPv6
        "/etc/ssl/fedbo/certificate.pem": str(made.certificate),
        "/etc/ssl/fedbo/key.pem": str(made.key),
    }


@contextlib.contextmanager
def running(started: Proxy, log: Path) -> Iterator[None]:
    """Run a proxy until the end of a ``with`` statement."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            started.run, env=started.environ, stdin=subprocess.DEVNULL, stdout=file, stderr=file
        )
    try:
        end = time.monotonic() + PATIENCE
        while True:
            assert process.poll() is None and time.monotonic() < end, log.read_text()
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", started.port)).close()
                break
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        finally:
            process.kill()
            process.wait()


@contextlib.contextmanager
def many_sockets() -> Iterator[None]:
    """Let this process open a socket for each stranger; the proxy inherits the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * STRANGERS + 500
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"a process may open {hard} files here, and this takes {needed}: ulimit -Hn")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def strangers(started: Proxy, start: str) -> Iterator[list[socket.socket]]:
    """Open connections from as many addresses, each with the start of a request and no more."""
    sent = start.format(host=f"127.0.0.1:{started.port}").encode()
    context = None
    if started.authority is not None:
        context = ssl.create_default_context(cafile=str(started.authority))
    with contextlib.ExitStack() as opened:
        connections = []
        for i in range(STRANGERS):
            source = f"127.1.{i // 250}.{i % 250 + 1}"
            connection = opened.enter_context(
                socket.create_connection(
                    ("127.0.0.1", started.port), timeout=PATIENCE, source_address=(source, 0)
                )
            )
            if context is not None:
                connection = opened.enter_context(
                    context.wrap_socket(connection, server_hostname="127.0.0.1")
                )
            connection.sendall(sent)
            connections.append(connection)
        yield connections


def is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1000) != b""
    except (BlockingIOError, ssl.SSLWantReadError):
        return True
    except OSError:
        return False


@pytest.fixture
def member(tmp_path: Path) -> Iterator[tuple[HubProcess, Callable[[str, Path | None], float]]]:
    """A hub, and a member's visit through an address; it returns the seconds that it took."""
    with HubProcess(f"sqlite:///{tmp_path}/hub.db", trusted_proxies="127.0.0.1") as hub:
        token = hub.enrol(hub.federation(), "m")
        sequence = 0

        def visit(address: str, authority: Path | None) -> float:
            nonlocal sequence
            sequence += 1
            content = message("m", sequence).encode()
            begin = time.perf_counter()
            verify = ssl.create_default_context(cafile=authority) if authority else True
            headers = {"Authorization": f"Bearer {token}", "Content-Type": MEDIA_TYPE}
            with httpx2.Client(
                headers=headers, timeout=PATIENCE, trust_env=False, verify=verify
            ) as client:
                sent = client.put(f"{address}/v1/federations/liver/messages", content=content)
                assert sent.json() == {"out": True}, (sent.status_code, sent.text)
            return time.perf_counter() - begin

        yield hub, visit


@pytest.mark.parametrize("name", NAMES)
def test_the_file_is_valid(name: Name, tmp_path: Path) -> None:
    made = proxy(name, 8765, tmp_path)
    done = subprocess.run(made.validate, env=made.environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[warn]" not in done.stderr and "DEPRECATED" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("kind", STARTS)
@pytest.mark.parametrize("name", NAMES)
def test_slow_strangers_keep_no_member_out(
    name: Name,
    kind: str,
    member: tuple[HubProcess, Callable[[str, Path | None], float]],
    tmp_path: Path,
) -> None:
    hub, visit = member
    made = proxy(name, hub.port, tmp_path)
    with (
        many_sockets(),
        running(made, tmp_path / "log"),
        strangers(made, STARTS[kind]) as connections,
    ):
        visits: list[float] = []
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            visits.append(visit(made.address, made.authority))
            time.sleep(0.2)
        assert statistics.median(visits) < 1.0 and max(visits) < 10.0, visits
        if kind == "half headers":  # they are given up after 10 seconds; a body may take longer
            end = time.monotonic() + PATIENCE
            while any(map(is_open, connections)):
                assert time.monotonic() < end, "the proxy waits for half headers"
                time.sleep(0.2)
    statuses = {line["status"] for line in hub.events() if line["event"] == "request"}
    assert statuses == {200}
