"""The processes of a hub: how they start, serve and stop.

With one worker, this process serves. With several, it starts them, starts one again that died, and
stops them; they stop by themselves if it dies. Each worker listens at a socket of its own, so that
the system spreads connections over them. Settings reach the workers by the environment, which other
users cannot see, and not by arguments.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import ipaddress
import multiprocessing
import os
import shutil
import signal
import socket
import ssl
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any

import uvicorn

from fedbo.hub import protocol
from fedbo.hub.database import HubError, open_database
from fedbo.hub.release_key import release_keys
from fedbo.hub.settings import METRICS_FOLDER, Settings, split

_BACKLOG = 1024  # connections that wait for a worker
_KEEP_ALIVE = 75  # seconds that an idle connection stays; longer than proxies keep theirs
_GRACE = 20  # seconds in which requests are finished when the hub stops
_LAST = 10.0  # more seconds, after which a worker is killed
_AGAIN = 3.0  # seconds in which a hub that was just killed frees its port
_YOUNG = 5.0  # seconds: a worker that dies younger did not start
_MOST_YOUNG = 5  # such deaths in a row
_SPARE_FILES = 200  # that are not connections


class Stage:
    """A hub that is about to serve: everything that can be wrong was checked.

    Args:
        settings: Its settings.
        app: Where the factory of the application is, as uvicorn writes it.

    Raises:
        HubError: If it cannot serve; the text says why, and what to do.
    """

    def __init__(self, settings: Settings, app: str = "fedbo.hub.app:from_environ") -> None:
        self.settings, self._app = settings, app
        _check_safe(settings)
        _check_tls(settings)
        release_keys(settings)
        self._sockets = _bound(settings)
        try:
            self.engine = open_database(settings.db)
        except BaseException:
            self.close()
            raise

    @property
    def address(self) -> str:
        """Where it can be reached from this machine."""
        host, port = self._sockets[0].getsockname()[:2]
        anywhere = {"0.0.0.0": "127.0.0.1", "::": "::1"}
        host = anywhere.get(host, host)
        shown = f"[{host}]" if ":" in host else host
        return f"{'https' if self.settings.tls_certificate else 'http'}://{shown}:{port}"

    def run(self, announce: Callable[[], None] = lambda: None) -> int:
        """Serve until a signal says to stop; return the exit code.

        Args:
            announce: Tells people where the hub is, once signals are heeded.

        Raises:
            HubError: If its workers do not start.
        """
        with _signals(_heed):
            announce()
            self.engine.dispose()
            os.environ.update(self.settings.to_environ())
            _allow_files()
            try:
                if len(self._sockets) == 1:
                    return _work(self._sockets[0], self._app)
                return _Supervisor(self._sockets, self._app).run()
            finally:
                self.close()

    def close(self) -> None:
        """Free the port."""
        for one in self._sockets:
            one.close()


_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_is_over = threading.Event()  # a signal has said that this process should stop


def _heed(sig: int, frame: FrameType | None) -> None:
    _is_over.set()


@contextlib.contextmanager
def _signals(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    usual = {sig: signal.signal(sig, handler) for sig in _SIGNALS}
    try:
        yield
    finally:
        for sig, former in usual.items():
            signal.signal(sig, former)


class _Server(uvicorn.Server):
    """A server whose process ends by itself when a signal has stopped it, with exit code 0."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self.config.is_ssl:  # uvicorn has no option for it
            loop: Any = asyncio.get_running_loop()
            loop.create_server = partial(
                loop.create_server, ssl_handshake_timeout=protocol.HEAD_SECONDS
            )
        await super().startup(sockets)
        gc.collect()
        gc.freeze()  # all that is there now stays; to look at it again and again takes 70 ms

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        with _signals(self.handle_exit):
            self.should_exit = self.should_exit or _is_over.is_set()
            yield


def _work(listening: socket.socket, app: str) -> int:
    """Serve at a socket in this process; return the exit code."""
    settings = Settings.from_environ(os.environ)
    protocol.most_connections = _most_connections()
    protocol.proxies = tuple(split(settings.trusted_proxies))
    config = uvicorn.Config(
        app,
        factory=True,
        http=protocol.Protocol,
        ws="none",
        loop="uvloop" if sys.platform != "win32" else "asyncio",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=split(settings.trusted_proxies),
        backlog=_BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=_GRACE,
        ssl_certfile=settings.tls_certificate or None,
        ssl_keyfile=settings.tls_key or None,
    )
    server = _Server(config)
    parent = multiprocessing.parent_process()
    if parent is not None:
        watch = threading.Thread(target=_watch, args=(parent, server), daemon=True)
        watch.start()
    server.run(sockets=[listening])
    return 0 if server.started or _is_over.is_set() else 1


def _watch(parent: BaseProcess, server: uvicorn.Server) -> None:
    """Stop the server when its parent has died, however it died."""
    wait([parent.sentinel])
    server.should_exit = True


def _start(listening: socket.socket, app: str) -> None:
    with _signals(_heed):
        sys.exit(_work(listening, app))


class _Supervisor:
    """Keeps one worker running for each socket."""

    def __init__(self, sockets: list[socket.socket], app: str) -> None:
        self._sockets, self._app = sockets, app
        self._context = multiprocessing.get_context("spawn")
        self._workers: list[tuple[BaseProcess, float]] = []
        self._young_deaths = 0

    def run(self) -> int:
        folder = tempfile.mkdtemp(prefix="fedbo-hub-metrics-")
        os.environ[METRICS_FOLDER] = folder
        try:
            self._workers = [self._started(one) for one in self._sockets]
            while not _is_over.is_set() and self._young_deaths < _MOST_YOUNG:
                wait([process.sentinel for process, _ in self._workers], timeout=0.2)
                self._replace_dead()
            self._end()
        finally:
            del os.environ[METRICS_FOLDER]
            shutil.rmtree(folder, ignore_errors=True)
        if not _is_over.is_set():
            raise HubError("the workers of the hub do not start: its log, above, says why")
        return 0

    def _started(self, listening: socket.socket) -> tuple[BaseProcess, float]:
        given = listening, self._app
        process = self._context.Process(target=_start, args=given, name="fedbo-hub-worker")
        usual = signal.signal(signal.SIGINT, signal.SIG_IGN)  # until the worker heeds it
        try:
            process.start()
        finally:
            signal.signal(signal.SIGINT, usual)
        return process, time.monotonic()

    def _replace_dead(self) -> None:
        for number, (process, since) in enumerate(self._workers):
            if process.is_alive() or _is_over.is_set():
                continue
            is_young = time.monotonic() - since < _YOUNG
            self._young_deaths = self._young_deaths + 1 if is_young else 0
            self._workers[number] = self._started(self._sockets[number])

    def _end(self) -> None:
        for process, _ in self._workers:
            if process.is_alive():
                process.terminate()
        end = time.monotonic() + _GRACE + _LAST
        for process, _ in self._workers:
            process.join(max(0.0, end - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()


def _check_safe(settings: Settings) -> None:
    if settings.tls_certificate or settings.plain or settings.trusted_proxies:
        return
    if not _is_loopback(settings.host):
        raise HubError(
            f"other machines can reach {settings.host}, and without TLS tokens would travel in the "
            "clear: give --tls-certificate and --tls-key; or --trusted-proxies if a proxy in front "
            "of the hub has the certificate; or --plain if the network itself is encrypted"
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _check_tls(settings: Settings) -> None:
    certificate, key = settings.tls_certificate, settings.tls_key
    if not certificate and not key:
        return
    if not certificate or not key:
        given, missing = ("certificate", "key") if certificate else ("key", "certificate")
        raise HubError(f"--tls-{given} is given without --tls-{missing}: give both files")
    for option, path in (("certificate", certificate), ("key", key)):
        try:
            with open(path, "rb") as file:
                file.read(1)
        except OSError as error:
            raise HubError(
                f"the TLS {option} {path} cannot be read ({error.strerror}): give a PEM file"
            ) from None
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key, password=lambda: "")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            why = f"{key} is not the private key of the certificate {certificate}"
        else:
            why = (
                f"{certificate} and {key} are not a certificate and its private key in PEM without "
                f"a password ({error.reason or 'they cannot be read'})"
            )
        raise HubError(f"TLS cannot be used: {why}") from None


def _bound(settings: Settings) -> list[socket.socket]:
    """Return a socket for each worker, all of them at one port, already listening."""
    end = time.monotonic() + _AGAIN
    while True:
        try:
            return _bind(settings)
        except OSError as error:
            if error.errno == errno.EADDRINUSE and time.monotonic() < end:
                time.sleep(0.1)
                continue
            raise HubError(_cannot_bind(settings, error)) from None


def _bind(settings: Settings) -> list[socket.socket]:
    found = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)
    family, _, _, _, place = sorted(found, key=lambda one: one[0] != socket.AF_INET)[0]
    if settings.workers == 1 or not sys.platform.startswith("linux"):
        one = _listening(family, place)
        return [one, *(one.dup() for _ in range(settings.workers - 1))]
    if settings.port:
        _listening(family, place).close()  # nobody else shares the port
    sockets: list[socket.socket] = []
    try:
        for _ in range(settings.workers):
            sockets.append(_listening(family, place, is_shared=True))
            place = sockets[0].getsockname()
    except BaseException:
        for one in sockets:
            one.close()
        raise
    return sockets


def _listening(family: int, place: object, *, is_shared: bool = False) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name == "posix":  # elsewhere it means that others may take the port over
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.bind(place)  # type: ignore[arg-type]
        made.listen(_BACKLOG)
    except BaseException:
        made.close()
        raise
    return made


def _cannot_bind(settings: Settings, error: OSError) -> str:
    where = f"port {settings.port} of {settings.host}"
    if error.errno == errno.EADDRINUSE:
        return (
            f"{where} is taken, perhaps by a hub that is running: stop it, or choose another port "
            "with --port"
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{where} needs special rights: choose a port from 1024 on with --port"
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return (
            f"{settings.host} is not an address of this machine: give --host one of its "
            "addresses, or 0.0.0.0 for all of them"
        )
    return f"{where} cannot be used: {error.strerror or error}"


def _allow_files() -> None:
    """Let this process have as many open files, and so connections, as the system allows."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = protocol.most_connections + _SPARE_FILES
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        if soft != resource.RLIM_INFINITY and soft < most:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _most_connections() -> int:
    try:
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    except (ImportError, OSError):
        return protocol.most_connections
    if soft == resource.RLIM_INFINITY:
        return protocol.most_connections
    return max(16, min(protocol.most_connections, soft - _SPARE_FILES))
