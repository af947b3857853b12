"""How a hub starts and serves, in one process. Connections and their timeouts are uvicorn's.

Everything that can be wrong is checked before, so that people get a sentence and not a traceback.
"""

from __future__ import annotations

import errno
import ipaddress
import signal
import socket
import ssl
import sys
import time

import uvicorn

from fedbo.hub.app import create_app, log_as_json
from fedbo.hub.service import Metrics, release_keys
from fedbo.hub.settings import Settings, split
from fedbo.hub.store import HubError, open_database

_BACKLOG = 1024  # connections that wait
_CONNECTIONS = 4000  # at once, idle ones included; what comes beyond gets an error 503
_OTHER_FILES = 200  # that the hub has open beside its connections
_KEEP_ALIVE = 75  # seconds that an idle connection stays; longer than proxies keep theirs
_GRACE = 20  # seconds in which requests are finished when the hub stops
_AGAIN = 3.0  # seconds in which a hub that was just killed frees its port


class Stage:
    """A hub that is about to serve: what can be wrong was checked, and would be a `HubError`."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        _check_safe(settings)
        _check_tls(settings)
        if settings.release_key:
            release_keys(settings)
        _check_metrics(settings)
        self._socket = _bound(settings)
        try:
            self.engine = open_database(settings.db)
        except BaseException:
            self._socket.close()
            raise

    @property
    def address(self) -> str:
        """Where it can be reached from this machine."""
        host, port = self._socket.getsockname()[:2]
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        shown = f"[{host}]" if ":" in host else host
        return f"{'https' if self.settings.tls_certificate else 'http'}://{shown}:{port}"

    def run(self) -> int:
        """Serve until a signal says to stop; return the exit code."""
        self.engine.dispose()
        log_as_json()
        with self._socket:
            server = uvicorn.Server(_config(self.settings))

            def stop(*_: object) -> None:  # uvicorn raises the signal again when it has stopped
                server.should_exit = True

            for sig in (signal.SIGINT, signal.SIGTERM):
                signal.signal(sig, stop)
            server.run(sockets=[self._socket])
            return 0 if server.started else 1


def _config(settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        create_app(settings),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=split(settings.trusted_proxies),
        limit_concurrency=_allowed(_CONNECTIONS),
        backlog=_BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=_GRACE,
        ssl_certfile=settings.tls_certificate or None,
        ssl_keyfile=settings.tls_key or None,
    )


def _allowed(connections: int) -> int:
    """Let this process have so many connections, or as many as the system lets it; return that."""
    if sys.platform == "win32":
        return connections
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = connections + _OTHER_FILES
    files = files if hard == resource.RLIM_INFINITY else min(files, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    return files - _OTHER_FILES


def _check_safe(settings: Settings) -> None:
    if settings.tls_certificate or settings.plain or settings.trusted_proxies:
        return
    if not _is_loopback(settings.host):
        raise HubError(
            f"other machines can reach {settings.host}, and without TLS tokens would travel in the "
            "clear: give --tls-certificate and --tls-key; or --trusted-proxies if a proxy in front "
            "of the hub has the certificate; or --plain if the network itself is encrypted"
        )


def _check_metrics(settings: Settings) -> None:
    if settings.metrics:
        metrics = Metrics(dict)
        metrics.start(settings.metrics)
        metrics.stop()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _check_tls(settings: Settings) -> None:
    certificate, key = settings.tls_certificate, settings.tls_key
    if bool(certificate) != bool(key):
        raise HubError("TLS needs both files, --tls-certificate and --tls-key")
    if certificate:
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, key, password=lambda: "")
        except OSError as error:  # of OpenSSL too
            raise HubError(
                f"{certificate} and {key} are not a certificate and its private key in PEM without "
                f"a password: {error}"
            ) from None


def _bound(settings: Settings) -> socket.socket:
    """Return a socket that is bound to the port."""
    end = time.monotonic() + _AGAIN
    while True:
        try:
            found = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)
            family, _, _, _, place = min(found, key=lambda each: each[0] != socket.AF_INET)
            return socket.create_server(place[:2], family=family, backlog=_BACKLOG)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > end:
                raise HubError(
                    f"the hub cannot listen at port {settings.port} of {settings.host} "
                    f"({error.strerror or error}): stop a hub that runs there, or choose another "
                    "--port, or a --host that is an address of this machine"
                ) from None
            time.sleep(0.1)
