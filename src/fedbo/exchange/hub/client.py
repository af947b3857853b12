"""The HTTP client of a member: every request to a hub, and everything that can go wrong with it.

Whatever a hub answers, or does not answer, becomes an `ExchangeError` that says what to do. An
answer has a limit in size and in time. Nothing in an error or a log comes from a request: it may
hold a token.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import ssl
import time
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from fedbo.errors import ExchangeError, HubRefused, NotSent, StrangeAnswer
from fedbo.exchange.hub.memberships import HubUrl
from fedbo.exchange.hub.wire import PROBLEM_TYPE, Problem
from fedbo.files import Lock
from fedbo.outside import printable, shortened
from fedbo.version import __version__

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")

JSON = "application/json"
MOST = 2**20  # bytes of an answer, by default
BUDGET = 25.0  # seconds for one call
_CONNECT, _READ = 5.0, 15.0  # seconds without progress; the latter also to write
_BUSY = (429, 503)  # statuses with which the hub says that it has done nothing
_BETWEEN = (502, 504)  # statuses of a proxy: the hub may have done it or not
_LONGEST = 500  # characters of what a hub says
_WRONG_TOKEN = (
    "The hub does not accept your token: you were revoked or removed, the token was rotated on "
    "another machine, or the hub was restored from a backup. Ask whoever runs it; to join again, "
    "run fedbo hub leave first"
)

_sleep = time.sleep


class Client:
    """Sends requests to a hub. All threads may use it at once; a forked process connects anew.

    Certificates are checked against those that the system trusts. The usual variables name a
    proxy and other certificates: ``HTTPS_PROXY``, ``ALL_PROXY``, ``NO_PROXY``, ``SSL_CERT_FILE``
    and ``SSL_CERT_DIR``. A redirect is never followed.

    A call has `BUDGET` seconds. It is repeated only if a busy hub says when to come back.
    """

    def __init__(self, url: HubUrl | str, token: str | None = None) -> None:
        self.url = HubUrl.parse(url) if isinstance(url, str) else url
        self._token = token
        self._lock = Lock()
        self._pid = os.getpid()
        self._http: httpx2.Client | None = None

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
    ) -> bytes:
        """Send bytes, and return the bytes of the answer, at most so many.

        After `HubRefused` and `NotSent` the hub has not done it; after another `ExchangeError`
        it may have.
        """
        package, http = self._connected()
        deadline = _Deadline()
        limits = {"connect": _CONNECT, "pool": _CONNECT, "read": deadline, "write": deadline}
        request = http.build_request(
            method,
            self.url.base + path,
            params=query,
            content=content,
            headers=None if content is None else {"Content-Type": media_type},
            extensions={"timeout": limits},
        )
        while True:
            try:
                response, answer = self._answer(http, request, most)
            except package.HTTPError as error:
                is_slow = isinstance(error, package.ReadTimeout | package.WriteTimeout)
                if is_slow and deadline.left() <= 0:
                    raise self.strange("its answer takes too long") from None
                raise self._failure(package, error) from None
            except ExchangeError:
                raise
            except (package.InvalidURL, package.StreamError, ValueError, OSError) as error:
                raise self.strange(type(error).__name__) from None
            if response.is_success:
                return answer
            pause = _pause(response)
            if pause is None or pause >= deadline.left():
                raise self._refusal(response, answer)
            _sleep(pause)

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

    def _answer(
        self, http: httpx2.Client, request: httpx2.Request, most: int
    ) -> tuple[httpx2.Response, bytes]:
        """Send a request; return the answer, and what is in it."""
        content = bytearray()
        with contextlib.closing(http.send(request, stream=True)) as response:
            for piece in response.iter_raw():
                content += piece
                if len(content) > most:
                    raise self.strange(f"its answer has more than {most:,} bytes")
        return response, bytes(content)

    def _refusal(self, response: httpx2.Response, content: bytes) -> ExchangeError:
        """Return the error for an answer that is not a success."""
        if response.is_redirect:
            target = printable(shortened(response.headers.get("Location", "")))
            return self.strange(
                f"it sends elsewhere, to {target!r}; if that is the hub, use its address"
            )
        slug, texts = "", []
        if response.headers.get("Content-Type", "").partition(";")[0].strip() == PROBLEM_TYPE:
            with contextlib.suppress(ValueError, RecursionError):
                problem = msgspec.json.decode(content, type=Problem)
                slug = shortened(printable(problem.type.rpartition("/")[2]))
                texts = [problem.title, problem.detail]
        text = ": ".join(printable(shortened(text, _LONGEST)) for text in texts if text)
        text = text or f"it answers with status {response.status_code}"
        text = f"{self.url.base}: {_WRONG_TOKEN if slug == 'wrong-token' else text}"
        return ExchangeError(text) if response.status_code in _BETWEEN else HubRefused(text, slug)

    def _failure(self, package: Any, error: Exception) -> ExchangeError:
        """Return the error for a request without an answer."""
        hub, why = self.url.base, printable(shortened(str(error), _LONGEST))
        if _is_about_a_certificate(error):
            return NotSent(
                f"the certificate of {hub} is not trusted ({why}); if the hub has a private "
                "certificate authority, set SSL_CERT_FILE to the file with its certificate, or add "
                "it to those that this system trusts (ca-certificates)"
            )
        if isinstance(error, package.ProxyError | package.ConnectError | package.ConnectTimeout):
            return NotSent(
                f"{hub} cannot be reached ({why or 'no answer'}); check the address, the network, "
                "and whether a proxy is needed (HTTPS_PROXY, ALL_PROXY, NO_PROXY)"
            )
        hint = "" if self.url.is_encrypted else ", or use https://"  # TLS hubs hang up
        return ExchangeError(
            f"{hub} did not answer ({why or 'the connection was closed'}); check the network, and "
            f"whether the hub is running{hint}"
        )

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
                # Not at exit: a courier may still send its last message.
                weakref.finalize(self, _close, self._http, self._pid).atexit = False
            return httpx2, self._http

    def _connect(self, package: Any) -> httpx2.Client:
        headers = {"User-Agent": f"fedbo/{__version__}", "Accept-Encoding": "identity"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        # Without encryption the hub is on this machine, and no proxy may see the token.
        is_far = self.url.is_encrypted
        try:
            client: httpx2.Client = package.Client(
                verify=is_far, trust_env=is_far, follow_redirects=False, headers=headers
            )
            return client
        except (OSError, ValueError, ImportError, package.InvalidURL):  # which may quote passwords
            raise NotSent(
                f"{self.url.base} was not asked: check the proxy in HTTPS_PROXY or ALL_PROXY, and "
                "the certificates in SSL_CERT_FILE or SSL_CERT_DIR"
            ) from None


class _Deadline:
    """The deadline of a call, and the time-out of each of its reads and writes.

    httpx2 hands a time-out to the socket before each piece, and the socket asks for it as a whole
    number of seconds (`__index__`). So a hub cannot stretch a call with an answer in small pieces,
    not even with headers, of which httpx2 returns nothing before they are complete.
    """

    def __init__(self) -> None:
        self._end = time.monotonic() + BUDGET

    def __index__(self) -> int:
        if (left := self.left()) <= 0:
            raise TimeoutError
        return math.ceil(min(left, _READ))

    def left(self) -> float:
        """Return how many seconds are left."""
        return self._end - time.monotonic()


def _pause(response: httpx2.Response) -> float | None:
    """Return after how many seconds a busy hub wants to be asked again; None: it does not."""
    after = response.headers.get("Retry-After", "")
    if response.status_code not in _BUSY or not re.fullmatch("[0-9]{1,9}", after):
        return None
    return max(1.0, float(after))  # never at once


def _close(http: httpx2.Client, process: int) -> None:
    if process == os.getpid():
        http.close()


def _is_about_a_certificate(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error is not None
