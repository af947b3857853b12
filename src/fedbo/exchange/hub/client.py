"""The HTTP client of a member: every request to a hub, and everything that can go wrong with it.

Whatever a hub answers, or does not answer, becomes an `ExchangeError` that says what to do. An
answer has a limit in size, before and after decompression, and in time. Nothing in an error or a
log comes from a request: it may hold a token.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import ssl
import time
import weakref
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import msgspec

from fedbo.exchange.errors import ExchangeError
from fedbo.exchange.hub.memberships import HubUrl
from fedbo.files import Lock
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
_BETWEEN = (502, 504)  # statuses of a proxy: the hub may have done it or not
_LONGEST = 500  # characters of what a hub says

_sleep = time.sleep
_abandoned: list[object] = []  # the connections of a parent process
_jitter = secrets.SystemRandom()  # nobody's seeded generator is touched


class HubRefused(ExchangeError):
    """A hub has refused a request, and has done nothing; the text and the slug say why."""

    def __init__(self, text: str, slug: str = "") -> None:
        super().__init__(text)
        self.slug = slug


class StrangeAnswer(ExchangeError):
    """What a hub has answered, no hub of fedbo answers; the text says what is wrong with it."""


class Unreachable(ExchangeError):
    """No connection to a hub was made, so that it has not received the request."""


class _Problem(msgspec.Struct):
    """A problem as RFC 9457 describes it."""

    type: str = ""
    title: str = ""
    detail: str = ""


class _Passing(Exception):
    """A request has failed in a way that may pass, after some seconds at least."""

    def __init__(self, error: ExchangeError, after: float = 0.0, *, is_down: bool = True) -> None:
        self.error, self.after, self.is_down = error, after, is_down


class Client:
    """Sends requests to a hub. All threads may use it at once; a forked process connects anew.

    Proxies and private certificate authorities are found by the usual variables: ``HTTPS_PROXY``,
    ``ALL_PROXY``, ``NO_PROXY``, ``SSL_CERT_FILE`` and ``SSL_CERT_DIR``. A redirect is never
    followed.

    A call that fails is tried again, with growing random pauses, for `BUDGET` seconds; once a hub
    was out of reach, only once until it answers again.

    Args:
        url: The address of the hub.
        token: Of the member; None if there is none yet.
    """

    def __init__(self, url: HubUrl | str, token: str | None = None) -> None:
        self.url = HubUrl.parse(url) if isinstance(url, str) else url
        self._token = token
        self._lock = Lock()
        self._pid = os.getpid()
        self._http: httpx.Client | None = None
        self._is_down = False

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
        """Send bytes, and return the bytes of the answer.

        Args:
            method: Of HTTP.
            path: Below the hub's address.
            content: What to send; None sends nothing.
            media_type: Of the content.
            query: What follows the path.
            most: The most bytes that the answer may have.
            once: Whether to try again only if it was certainly not done.

        Raises:
            HubRefused: If the hub refuses it.
            Unreachable: If there is no connection to the hub.
            ExchangeError: If the hub does not answer, or not as a hub does. It may have done it.
        """
        httpx, http = self._connected()
        headers = {"Accept-Encoding": "gzip"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        if content is not None:
            headers["Content-Type"] = media_type
        request = http.build_request(
            method, self.url.base + path, params=query, content=content, headers=headers
        )
        end, pause, was_down = time.monotonic() + BUDGET, _FIRST_PAUSE, self._is_down
        while True:
            try:
                answer = self._attempt(httpx, http, request, most, end)
                self._is_down = False
                return answer
            except _Passing as failure:
                self._is_down = failure.is_down
                wait = max(_jitter.uniform(0, pause), failure.after)
                is_last = was_down or time.monotonic() + wait > end
                may_be_done = not isinstance(failure.error, HubRefused | Unreachable)
                if is_last or (once and may_be_done):
                    raise failure.error from None
            except ExchangeError as error:
                self._is_down = isinstance(error, Unreachable)
                raise
            pause = min(2 * pause, _LONGEST_PAUSE)
            _sleep(wait)

    def read(self, decoder: Any, answer: bytes) -> Any:
        """Return what a decoder of msgspec finds in an answer."""
        try:
            return decoder.decode(answer)
        except (ValueError, RecursionError) as error:
            raise self.strange(shortened(printable(str(error)), _LONGEST)) from None

    def ask(self, path: str, body: object, answer: type[T], **options: Any) -> T:
        """Post JSON, and return what the hub answers in JSON; the options are those of `send`."""
        data = self.send("POST", path, msgspec.json.encode(body), **options)
        content: T = self.read(msgspec.json.Decoder(answer), data)
        return content

    def strange(self, why: str) -> StrangeAnswer:
        """Return the error for an answer that no hub gives."""
        return StrangeAnswer(
            f"{self.url.base} does not answer as a hub of fedbo does ({why}); check the address, "
            "and whether the hub and this fedbo have the same version"
        )

    def _attempt(
        self, package: Any, http: httpx.Client, request: httpx.Request, most: int, end: float
    ) -> bytes:
        response = None
        try:
            response = http.send(request, stream=True)
            data = bytearray()
            for piece in response.iter_raw():
                data += piece
                if len(data) > most:
                    self._too_large(most)
                if time.monotonic() > end + _READ:
                    raise self.strange("its answer takes too long")
            content = self._decompressed(response, bytes(data), most)
        except package.HTTPError as error:
            self._fail(package, error)
        except ExchangeError:
            raise
        except (package.InvalidURL, package.StreamError, ValueError, OSError) as error:
            raise self.strange(type(error).__name__) from None
        finally:
            if response is not None:
                response.close()
        if not response.is_success:
            self._refuse(response, content)
        return content

    def _decompressed(self, response: httpx.Response, data: bytes, most: int) -> bytes:
        """Decompress an answer; never to more bytes than it may have."""
        coding = response.headers.get("Content-Encoding", "identity").lower()
        if coding == "identity":
            return data
        if coding != "gzip":
            raise self.strange(f"its answer is encoded as {printable(shortened(coding))!r}")
        reader = zlib.decompressobj(31)
        try:
            content = reader.decompress(data, most + 1)
        except zlib.error:
            raise self.strange("its answer cannot be decompressed") from None
        if len(content) > most:
            self._too_large(most)
        if not reader.eof:
            raise self.strange("its answer is cut short")
        return content

    def _too_large(self, most: int) -> NoReturn:
        raise self.strange(f"its answer has more than {most:,} bytes")

    def _refuse(self, response: httpx.Response, content: bytes) -> NoReturn:
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
        if slug == "wrong-token":
            text = (
                "The hub does not accept your token: you were revoked or removed, the token was "
                "rotated on another machine, or the hub was restored from a backup. Ask whoever "
                "runs it"
            )
        text = f"{self.url.base}: {text}"
        after = _seconds(response.headers.get("Retry-After", ""))
        if status in _BETWEEN:
            raise _Passing(ExchangeError(text), after)
        error = HubRefused(text, slug)
        if status in _BUSY:
            raise _Passing(error, after, is_down=status != 429)
        raise error

    def _fail(self, package: Any, error: Exception) -> NoReturn:
        """Raise the error for a request without an answer."""
        hub, why = self.url.base, printable(shortened(str(error), _LONGEST))
        if _is_about_a_certificate(error):
            raise Unreachable(
                f"the certificate of {hub} is not trusted ({why}); if the hub has a private "
                "certificate authority, set SSL_CERT_FILE to the file with its certificate"
            ) from None
        if isinstance(error, package.ProxyError):
            failure: ExchangeError = Unreachable(
                f"{hub} cannot be reached through the proxy ({why}); check HTTPS_PROXY, "
                "ALL_PROXY and NO_PROXY"
            )
        elif isinstance(error, package.ConnectError | package.ConnectTimeout):
            failure = Unreachable(
                f"{hub} cannot be reached ({why or 'no answer'}); check the address, the network, "
                "and whether a proxy is needed (HTTPS_PROXY)"
            )
        else:
            if isinstance(error, package.TimeoutException):
                why = "it did not answer in time"
            hint = "" if self.url.is_encrypted else ", or use https://"  # TLS hubs hang up
            failure = ExchangeError(
                f"{hub} did not answer ({why or 'the connection was closed'}); check the network, "
                f"and whether the hub is running{hint}"
            )
        raise _Passing(failure) from None

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


def _close(http: httpx.Client, process: int) -> None:
    if process == os.getpid():
        http.close()


def _is_about_a_certificate(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error is not None


def _seconds(text: str) -> float:
    """Return the seconds that ``Retry-After`` asks for; 0 if it cannot be read."""
    return float(text[:9]) if text.isascii() and text.isdigit() else 0.0
