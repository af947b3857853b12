"""A server that answers whatever a test wants: what a hub could never be trusted not to do."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any, NamedTuple

PROBLEM = "application/problem+json"


class Answer(NamedTuple):
    """An answer of HTTP; ``raw`` bytes are sent instead of all else, then ``endless`` ones."""

    status: int = 200
    content: bytes = b"{}"
    headers: Mapping[str, str] = MappingProxyType({})
    raw: bytes | None = None
    endless: bytes = b""


class Request(NamedTuple):
    """What a client has sent."""

    method: str
    path: str
    headers: dict[str, str]
    content: bytes


class Liar:
    """A server on this machine.

    Args:
        answer: Returns the answer to a request.
    """

    def __init__(self, answer: Callable[[Request], Answer]) -> None:
        self.asked: list[Request] = []
        liar = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def _reply(self) -> None:
                content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                asked = Request(self.command, self.path, dict(self.headers), content)
                liar.asked.append(asked)
                given = answer(asked)
                if given.raw is not None:
                    self.wfile.write(given.raw)
                    while given.endless:
                        self.wfile.write(given.endless)
                        time.sleep(0.01)
                    self.close_connection = True
                    return
                self.send_response(given.status)
                for name, value in {"Content-Length": str(len(given.content))}.items():
                    self.send_header(name, given.headers.get(name, value))
                for name, value in given.headers.items():
                    if name != "Content-Length":
                        self.send_header(name, value)
                self.end_headers()
                self.wfile.write(given.content)

            do_GET = do_PUT = do_POST = do_DELETE = _reply  # noqa: N815

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # the client has gone

        self._server = Server(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Liar:
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
