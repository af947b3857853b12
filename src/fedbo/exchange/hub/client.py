"""The HTTP client of a member: every request to a hub, and everything that can go wrong with it.

Whatever a hub answers, or does not answer, becomes an `ExchangeError` that says what to do. An
answer has a limit in size and in time. Nothing in an error or a log comes from a request: it may
hold a token.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import msgspec

from fedbo.exchange.errors import ExchangeError, NotSent
from fedbo.exchange.hub.memberships import HubUrl
from fedbo.files import Lock
from fedbo.outside import printable, shortened

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")

JSON = "application/json"
PROBLEM = "application/problem+json"
MOST = 2**20  # bytes of an answer, by default
BUDGET = 10.0  # seconds for one call, retries included
_CONNECT, _READ = 5.0, 15.0  # seconds
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 4.0  # seconds; each pause is up to twice the one before
_BUSY = (429, 503)  # statuses with which the hub says that it has done nothing
_BETWEEN = (502, 504)  # statuses of a proxy: the hub may have done it or not
_LONGEST = 500  # characters of what a hub says
_WRONG_TOKEN = (
    "The hub does not accept your token: you were revoked or removed, the token was rotated on "
    "another machine, or the hub was restored from a backup. Ask whoever runs it; to join again, "
    "run fedbo hub leave first"
)

_sleep = time.sleep
_jitter = secrets.SystemRandom()  # nobody's seeded generator is touched


class HubRefused(ExchangeError):
    """A hub has refused a request, and has done nothing; the text and the slug say why."""

    def __init__(self, text: str, slug: str = "") -> None:
        super().__init__(text)
        self.slug = slug


class StrangeAnswer(ExchangeError):
    """What a hub has answered, no hub of fedbo answers; the text says what is wrong with it."""


class _Problem(msgspec.Struct):
    """A problem as RFC 9457 describes it."""

    type: str = ""
    title: str = ""
    detail: str = ""


class _Passing(Exception):
    """A request has failed in a way that may pass, after some seconds at least."""

    def __init__(self, error: ExchangeError, after: float = 0.0) -> None:
        self.error, self.after = error, after


class Client:
    """Sends requests to a hub. All threads may use it at once; a forked process connects anew.

    Certificates are checked against those that the system trusts. The usual variables name a
    proxy and other certificates: ``HTTPS_PROXY``, ``ALL_PROXY``, ``NO_PROXY``, ``SSL_CERT_FILE``
    and ``SSL_CERT_DIR``. A redirect is never followed.

    A call that fails is tried again, with growing random pauses, for `BUDGET` seconds; after one
    that failed, only once.
    """

    def __init__(self, url: HubUrl | str, token: str | None = None) -> None:
        self.url = HubUrl.parse(url) if isinstance(url, str) else url
        self._token = token
        self._lock = Lock()
        self._pid = os.getpid()
        self._http: httpx2.Client | None = None
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._has_failed = False

    def __repr__(self) -> str:
        return f"Client({self.url.base!r})"

    def __reduce__(self) -> str:
        raise TypeError("a token is not copied to other processes: make a new client there")

    def send(
        self,
        method: str,
        path: str,
        content: bytes | None = None,
        media_type: str = JSON,
        *,
        query: Mapping[str, str] | None = None,
        most: int = MOST,
        once: bool = False,
    ) -> bytes:
        """Send bytes, and return the bytes of the answer, at most so many.

        After `HubRefused` and `NotSent` the hub has not done it; after another `ExchangeError`
        it may have. With ``once``, it is then not tried again.
        """
        package, http = self._connected()
        headers = {"Accept-Encoding": "identity"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        if content is not None:
            headers["Content-Type"] = media_type
        request = http.build_request(
            method,
            self.url.base + path,
            params=query,
            content=content,
            headers=headers,
            extensions={"trace": self._trace},
        )
        end, pause, was_sent = time.monotonic() + BUDGET, _FIRST_PAUSE, False
        is_last, self._has_failed = self._has_failed, True
        while True:
            try:
                answer = self._attempt(package, http, request, most, end)
                self._has_failed = False
                return answer
            except _Passing as failure:
                wait = max(_jitter.uniform(0, pause), failure.after)
                may_be_done = not isinstance(failure.error, HubRefused | NotSent)
                if is_last or time.monotonic() + wait > end or (once and may_be_done):
                    if was_sent and isinstance(failure.error, NotSent):  # by an earlier attempt
                        raise ExchangeError(str(failure.error)) from None
                    raise failure.error from None
                was_sent |= not isinstance(failure.error, NotSent)
            except (HubRefused, StrangeAnswer):
                self._has_failed = False
                raise
            pause = min(2 * pause, _LONGEST_PAUSE)
            _sleep(wait)

    def ask(self, method: str, path: str, body: object, answer: type[T], **options: Any) -> T:
        """Send JSON, and return what the hub answers in JSON; the options are those of `send`."""
        question = None if body is None else msgspec.json.encode(body)
        data = self.send(method, path, question, **options)
        content: T = self.read(msgspec.json.Decoder(answer), data)
        return content

    def read(self, decoder: Any, answer: bytes) -> Any:
        """Return what a decoder of msgspec finds in an answer."""
        try:
            return decoder.decode(answer)
        except (ValueError, RecursionError) as error:
            raise self.strange(shortened(printable(str(error)), _LONGEST)) from None

    def strange(self, why: str) -> StrangeAnswer:
        """Return the error for an answer that no hub gives."""
        return StrangeAnswer(
            f"{self.url.base} does not answer as a hub of fedbo does ({why}); check the address, "
            "and whether the hub and this fedbo have the same version"
        )

    def _attempt(
        self, package: Any, http: httpx2.Client, request: httpx2.Request, most: int, end: float
    ) -> bytes:
        response, failure = None, None
        timer = threading.Timer(end + _READ - time.monotonic(), self._hang_up)
        timer.daemon = True
        try:
            with contextlib.suppress(RuntimeError):  # no thread starts while Python ends
                timer.start()
            response = http.send(request, stream=True)
            data = bytearray()
            for piece in response.iter_raw():
                data += piece
                if len(data) > most:
                    raise self.strange(f"its answer has more than {most:,} bytes")
                if time.monotonic() >= end + _READ:
                    break
        except package.HTTPError as error:
            failure = error
        except ExchangeError:
            raise
        except (package.InvalidURL, package.StreamError, ValueError, OSError) as error:
            raise self.strange(type(error).__name__) from None
        finally:
            timer.cancel()
            if response is not None:
                response.close()
        if time.monotonic() >= end + _READ:
            raise self.strange("its answer takes too long")
        if failure is not None or response is None:
            self._fail(package, failure)
        if not response.is_success:
            self._refuse(response, bytes(data))
        return bytes(data)

    def _trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Note the sockets of connections, as httpx2 makes them."""
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            with self._lock:
                self._sockets.add(info["return_value"].get_extra_info("socket"))

    def _hang_up(self) -> None:
        """End all connections, at once even for threads that are reading from them."""
        with self._lock:
            for each in self._sockets:
                with contextlib.suppress(OSError):  # it is closed
                    socket.socket.shutdown(each, socket.SHUT_RDWR)

    def _refuse(self, response: httpx2.Response, content: bytes) -> NoReturn:
        """Raise the error for an answer that is not a success."""
        status = response.status_code
        if response.is_redirect:
            target = printable(shortened(response.headers.get("Location", "")))
            raise self.strange(
                f"it sends elsewhere, to {target!r}; if that is the hub, use its address"
            )
        problem = _Problem()
        if response.headers.get("Content-Type", "").partition(";")[0].strip() == PROBLEM:
            with contextlib.suppress(ValueError, RecursionError):
                problem = msgspec.json.decode(content, type=_Problem)
        slug = shortened(printable(problem.type.rpartition("/")[2]))
        parts = [printable(shortened(text, _LONGEST)) for text in (problem.title, problem.detail)]
        text = ": ".join(part for part in parts if part) or f"it answers with status {status}"
        text = f"{self.url.base}: {_WRONG_TOKEN if slug == 'wrong-token' else text}"
        after = response.headers.get("Retry-After", "")[:9]
        seconds = float(after) if after.isascii() and after.isdigit() else 0.0
        if status in _BETWEEN:
            raise _Passing(ExchangeError(text), seconds)
        error = HubRefused(text, slug)
        raise _Passing(error, seconds) if status in _BUSY else error

    def _fail(self, package: Any, error: Exception | None) -> NoReturn:
        """Raise the error for a request without an answer."""
        hub, why = self.url.base, printable(shortened(str(error), _LONGEST))
        if _is_about_a_certificate(error):
            raise NotSent(
                f"the certificate of {hub} is not trusted ({why}); if the hub has a private "
                "certificate authority, set SSL_CERT_FILE to the file with its certificate, or add "
                "it to those that this system trusts (ca-certificates)"
            ) from None
        if isinstance(error, package.ProxyError | package.ConnectError | package.ConnectTimeout):
            raise _Passing(
                NotSent(
                    f"{hub} cannot be reached ({why or 'no answer'}); check the address, the "
                    "network, and whether a proxy is needed (HTTPS_PROXY, ALL_PROXY, NO_PROXY)"
                )
            ) from None
        hint = "" if self.url.is_encrypted else ", or use https://"  # TLS hubs hang up
        raise _Passing(
            ExchangeError(
                f"{hub} did not answer ({why or 'the connection was closed'}); check the network, "
                f"and whether the hub is running{hint}"
            )
        ) from None

    def _connected(self) -> tuple[Any, httpx2.Client]:
        """Return the package and the connections of this process."""
        try:
            import httpx2
        except ImportError:
            raise NotSent(
                f"{self.url.base} is a hub, and hubs are reached with the package httpx2, which "
                "fedbo does not install by default: pip install 'fedbo[client]'"
            ) from None
        with self._lock:
            if self._http is None or self._pid != os.getpid():
                self._http, self._pid = self._connect(httpx2), os.getpid()
                self._sockets = weakref.WeakSet()  # a parent's are not this process's to end
                # Not at exit: a courier may still send its last message.
                weakref.finalize(self, _close, self._http, self._pid).atexit = False
            return httpx2, self._http

    def _connect(self, package: Any) -> httpx2.Client:
        from fedbo.version import __version__

        # Without encryption the hub is on this machine, and no proxy may see the token.
        is_far = self.url.is_encrypted
        try:
            client: httpx2.Client = package.Client(
                verify=is_far,
                trust_env=is_far,
                timeout=package.Timeout(_READ, connect=_CONNECT),
                follow_redirects=False,
                headers={"User-Agent": f"fedbo/{__version__}"},
            )
            return client
        except (OSError, ValueError, ImportError, package.InvalidURL):  # which may quote passwords
            raise NotSent(
                f"{self.url.base} was not asked: check the proxy in HTTPS_PROXY or ALL_PROXY, and "
                "the certificates in SSL_CERT_FILE or SSL_CERT_DIR"
            ) from None


def _close(http: httpx2.Client, process: int) -> None:
    if process == os.getpid():
        http.close()


def _is_about_a_certificate(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error is not None
