"""The HTTP client of a member: every request to a hub, and everything that can go wrong with it.

Whatever a hub answers, or does not answer, becomes an `ExchangeError` that says what to do. An
answer has a limit in size, before and after decompression, and in time. Nothing in an error or a
log comes from a request: it may hold a token.
"""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import time
import weakref
import zlib
from collections.abc import Callable, Mapping
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import msgspec

from fedbo.exchange.base import ExchangeError
from fedbo.exchange.hub.url import HubUrl
from fedbo.locks import Lock
from fedbo.outside import printable, shortened

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")

JSON = "application/json"
PROBLEM = "application/problem+json"
MOST = 2**20  # bytes of an answer, by default
BUDGET = 10.0  # seconds for one call, retries included
_CONNECT, _READ = 5.0, 15.0  # seconds
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 4.0  # seconds; each pause is up to twice the one before
_BUSY = (429, 503)  # statuses with which the hub says that it has done nothing
BETWEEN = (502, 504)  # statuses of a proxy: the hub may have done it or not
_LONGEST = 500  # characters of what a hub says
_WINDOW = 2**23  # bytes that zstd may look back, as RFC 9659 says

_PIECE = 2**16  # bytes that are decompressed at once

_sleep = time.sleep
_abandoned: list[object] = []  # the connections of a parent process
_jitter = secrets.SystemRandom()  # nobody's seeded generator is touched


class HubRefused(ExchangeError):
    """A hub has refused a request; the text says why.

    Args:
        text: What to tell people.
        slug: Which problem it is, such as "wrong-token".
        status: The status of the answer.
    """

    def __init__(self, text: str, slug: str = "", status: int = 0) -> None:
        super().__init__(text)
        self.slug, self.status = slug, status


class StrangeAnswer(ExchangeError):
    """What a hub has answered, no hub of fedbo answers; the text says what is wrong with it."""


class Unreachable(ExchangeError):
    """No connection to a hub was made, so that it has not received the request."""


class _Problem(msgspec.Struct):
    """A problem as RFC 9457 describes it."""

    type: str = ""
    title: str = ""
    detail: str = ""


class Client:
    """Sends requests to a hub. All threads may use it at once; a forked process connects anew.

    Proxies and private certificate authorities are found by the usual variables: ``HTTPS_PROXY``,
    ``ALL_PROXY``, ``NO_PROXY``, ``SSL_CERT_FILE`` and ``SSL_CERT_DIR``. A redirect is never
    followed.

    A call that fails is tried again, with growing random pauses, for `BUDGET` seconds; once a hub
    was out of reach, only once until it answers again.

    Args:
        address: The address of the hub.
        token: Of the member; None if there is none yet.
    """

    def __init__(self, address: HubUrl | str, token: str | None = None) -> None:
        self.url = HubUrl.parse(address) if isinstance(address, str) else address
        self._token = token
        self._lock = Lock()
        self._pid = os.getpid()
        self._http: httpx.Client | None = None
        self._is_down = False

    def __repr__(self) -> str:
        return f"Client({self.url.base!r})"

    def __deepcopy__(self, memo: object) -> Client:
        return self

    def __reduce__(self) -> str:
        raise TypeError("a token is not copied to other processes: make a new client there")

    def ask(
        self,
        method: str,
        path: str,
        answer: type[T],
        body: object = None,
        *,
        query: Mapping[str, str] | None = None,
        most: int = MOST,
        once: bool = False,
    ) -> T:
        """Send JSON, and return what the hub answers in JSON.

        Args:
            method: Of HTTP.
            path: Below the hub's address.
            answer: The type of the answer.
            body: What to send; None sends nothing.
            query: What follows the path.
            most: The most bytes that the answer may have.
            once: Whether the hub must not do it twice.
        """
        content = None if body is None else msgspec.json.encode(body)
        data = self.send(method, path, content, JSON, query=query, most=most, once=once)
        return self.read(msgspec.json.Decoder(answer).decode, data)

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
        """Send bytes, and return the bytes of the answer.

        Args:
            method: Of HTTP.
            path: Below the hub's address.
            content: What to send; None sends nothing.
            media_type: What kind of content that is.
            query: What follows the path.
            most: The most bytes that the answer may have.
            once: Whether the hub must not do it twice: then it is tried again only if it was
                certainly not done.

        Raises:
            HubRefused: If the hub refuses it.
            Unreachable: If there is no connection to the hub.
            ExchangeError: If the hub does not answer, or not as a hub does.
        """
        httpx, http = self._connected()
        headers = {"Accept-Encoding": "zstd, gzip" if _has_zstd() else "gzip"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        if content is not None:
            headers["Content-Type"] = media_type
        request = http.build_request(
            method, self.url.base + path, params=query, content=content, headers=headers
        )
        end, pause, was_down = time.monotonic() + BUDGET, _FIRST_PAUSE, self._is_down
        while True:
            wait = _jitter.uniform(0, pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            try:
                answer = self._attempt(http, request, most, end)
                self._is_down = False
                return answer
            except _Again as again:
                self._is_down = again.is_down
                wait = max(wait, again.after)
                is_last = was_down or time.monotonic() + wait > end
                if is_last or (once and again.is_done):
                    raise again.error from None
            except httpx.HTTPError as error:
                failure = self._failure(httpx, error)
                self._is_down = True
                is_last = was_down or time.monotonic() + wait > end
                is_sent = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
                if is_last or (once and is_sent) or _is_certificate(error):
                    raise failure from None
            except ExchangeError:
                self._is_down = False
                raise
            except (httpx.InvalidURL, httpx.StreamError, ValueError, OSError) as error:
                raise self.strange(type(error).__name__) from None
            _sleep(wait)

    def read(self, decode: Callable[[bytes], T], data: bytes) -> T:
        """Return what is in an answer.

        Args:
            decode: Returns what is in it; a ValueError if no hub gives such an answer.
            data: The answer.
        """
        try:
            return decode(data)
        except (ValueError, RecursionError) as error:
            raise self.strange(shortened(printable(str(error)), _LONGEST)) from None

    def _attempt(self, http: httpx.Client, request: httpx.Request, most: int, end: float) -> bytes:
        response = http.send(request, stream=True)
        try:
            data = bytearray()
            for piece in response.iter_raw():
                data += piece
                if len(data) > most:
                    self._too_large(most)
                if time.monotonic() > end + _READ:
                    raise self.strange("its answer takes too long")
            coding = response.headers.get("Content-Encoding", "identity").lower()
            content = self._decoded(bytes(data), coding, most)
            if not response.is_success:
                self._refuse(response, content)
            return content
        finally:
            response.close()

    def _decoded(self, data: bytes, coding: str, most: int) -> bytes:
        """Decompress an answer; never to more bytes than it may have."""
        try:
            if coding == "identity":
                content = data
            elif coding == "gzip":
                content = _from_gzip(data, most + 1)
            elif coding == "zstd" and _has_zstd():
                content = _from_zstd(data, most + 1)
            else:
                raise self.strange(f"its answer is encoded as {printable(shortened(coding))!r}")
        except zlib.error:
            raise self.strange("its answer cannot be decompressed") from None
        if len(content) > most:
            self._too_large(most)
        return content

    def _refuse(self, response: httpx.Response, content: bytes) -> NoReturn:
        """Raise the error for an answer that is not a success."""
        status, where = response.status_code, self.url.base
        if response.is_redirect:
            to = printable(shortened(response.headers.get("Location", "")))
            raise self.strange(
                f"it sends elsewhere, to {to!r}; if that is the hub, use its address"
            )
        problem = _Problem()
        if response.headers.get("Content-Type", "").partition(";")[0].strip() == PROBLEM:
            with contextlib.suppress(ValueError, RecursionError):
                problem = msgspec.json.decode(content, type=_Problem)
        slug = shortened(printable(problem.type.rpartition("/")[2]))
        said = [printable(shortened(text, _LONGEST)) for text in (problem.title, problem.detail)]
        text = ": ".join(text for text in said if text) or f"it answers with status {status}"
        if slug == "wrong-token":
            text = (
                "The hub does not accept your token: you were revoked or removed, the token was "
                "rotated on another machine, or the hub was restored from a backup. Ask whoever "
                "runs it"
            )
        error = HubRefused(f"{where}: {text}", slug, status)
        if status in _BUSY or status in BETWEEN:
            after = _seconds(response.headers.get("Retry-After", ""))
            raise _Again(error, after, is_down=status != 429, is_done=status in BETWEEN)
        raise error

    def _connected(self) -> tuple[Any, httpx.Client]:
        """Return the package and the connections of this process."""
        try:
            import httpx
        except ImportError:
            raise ExchangeError(
                f"{self.url.base} is a hub, and hubs are reached with the package httpx, which "
                "fedbo does not install by default: pip install 'fedbo[client]'"
            ) from None
        with self._lock:
            if self._http is None or self._pid != os.getpid():
                if self._http is not None:
                    _abandoned.append(self._http)  # a lock in it may be held for ever
                self._http, self._pid = self._connect(httpx), os.getpid()
                weakref.finalize(self, _close, self._http, self._pid)
            return httpx, self._http

    def _connect(self, package: Any) -> httpx.Client:
        from fedbo.version import __version__

        # Without encryption the hub is on this machine, and no proxy may see the token.
        is_far = self.url.is_encrypted
        try:
            client: httpx.Client = package.Client(
                verify=is_far,
                trust_env=is_far,
                timeout=package.Timeout(_READ, connect=_CONNECT),
                follow_redirects=False,
                headers={"User-Agent": f"fedbo/{__version__}"},
            )
            return client
        except (OSError, ValueError, ImportError, package.InvalidURL) as error:
            reason = "a proxy in HTTPS_PROXY or ALL_PROXY cannot be used"
            if isinstance(error, OSError):  # of OpenSSL too
                reason = "the certificates in SSL_CERT_FILE or SSL_CERT_DIR cannot be read"
            raise ExchangeError(
                f"{self.url.base} was not asked: {reason}; check these variables"
            ) from None

    def _failure(self, httpx: Any, error: Exception) -> ExchangeError:
        where, why = self.url.base, printable(shortened(str(error), _LONGEST))
        if _is_certificate(error):
            return Unreachable(
                f"the certificate of {where} is not trusted ({why}); if the hub has a private "
                "certificate authority, set SSL_CERT_FILE to the file with its certificate"
            )
        if isinstance(error, httpx.ProxyError):
            return Unreachable(
                f"{where} cannot be reached through the proxy ({why}); check HTTPS_PROXY, "
                "ALL_PROXY and NO_PROXY"
            )
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            reason = why or "no answer"
            return Unreachable(
                f"{where} cannot be reached ({reason}); check the address, the network, and "
                "whether a proxy is needed (HTTPS_PROXY)"
            )
        hint = "check the network, and whether the hub is running"
        if isinstance(error, httpx.TimeoutException):
            why = "it did not answer in time"
        elif not self.url.is_encrypted:
            hint += ", or use https://"  # a hub with TLS closes the connection
        why = why or "the connection was closed"
        return ExchangeError(f"{where} did not answer ({why}); {hint}")

    def strange(self, why: str) -> StrangeAnswer:
        """Return the error for an answer that no hub gives."""
        return StrangeAnswer(
            f"{self.url.base} does not answer as a hub of fedbo does ({why}); check the address, "
            "and whether the hub and this fedbo have the same version"
        )

    def _too_large(self, most: int) -> NoReturn:
        raise self.strange(f"its answer has more than {most:,} bytes")


class _Again(Exception):
    """A request may be tried again after some seconds."""

    def __init__(self, error: ExchangeError, after: float, *, is_down: bool, is_done: bool) -> None:
        self.error, self.after, self.is_down, self.is_done = error, after, is_down, is_done


def _close(http: httpx.Client, process: int) -> None:
    if process == os.getpid():
        http.close()


@cache
def _has_zstd() -> bool:
    return find_spec("zstandard") is not None


def _from_gzip(data: bytes, most: int) -> bytes:
    reader = zlib.decompressobj(31)
    content = reader.decompress(data, most)
    if not reader.eof and len(content) < most:
        raise zlib.error
    return content


def _from_zstd(data: bytes, most: int) -> bytes:
    import zstandard

    content = bytearray()
    try:
        reader = zstandard.ZstdDecompressor(max_window_size=_WINDOW).stream_reader(io.BytesIO(data))
        while len(content) < most and (piece := reader.read(min(_PIECE, most - len(content)))):
            content += piece
    except zstandard.ZstdError:
        raise zlib.error from None
    return bytes(content)


def _is_certificate(error: Exception) -> bool:
    return "CERTIFICATE_VERIFY_FAILED" in str(error)


def _seconds(text: str) -> float:
    """Return the seconds that ``Retry-After`` asks for; 0 if it cannot be read."""
    if text.isascii() and text.isdigit():
        return float(text[:9])
    from email.utils import parsedate_to_datetime  # slow to import

    with contextlib.suppress(ValueError, TypeError, OverflowError, IndexError):
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    return 0.0
