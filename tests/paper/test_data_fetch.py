"""Downloads over a real connection: whole and verified, or nothing, and always a sentence."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from cli.terminal import run

import fedbo
from fedbo.errors import FileRefused
from fedbo_paper.data import gleam
from fedbo_paper.data.fetch import FetchFailed, download

CONTENT = bytes(range(256)) * 4096  # 1 MiB: several chunks


class Site(BaseHTTPRequestHandler):
    """Answers by path; what it was asked is in ``asked``."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(f"{self.path} {self.headers['User-Agent']}")
        if self.path == "/gone":
            self.send_error(404)
        else:
            self.send_response(200)
            length = len(CONTENT) + 1000 * (self.path == "/truncated")
            self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(CONTENT)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without whatever proxy the machine has."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def good(path: Path) -> None:
    if path.read_bytes() != CONTENT:
        raise FileRefused("it is something else")


def bad(path: Path) -> None:
    raise FileRefused("its MD5 is 1, expected 2")


def silent(received: int, total: int | None) -> None:
    pass


# ---------------------------------------------------------------- download


def test_a_download_is_whole(site: str, tmp_path: Path) -> None:
    reports: list[tuple[int, int | None]] = []
    target = tmp_path / "new" / "file.bin"
    download(site + "/data", target, good, lambda *report: reports.append(report))
    assert target.read_bytes() == CONTENT
    assert os.listdir(target.parent) == ["file.bin"]
    assert reports[0][0] == 0 and reports[-1][0] == len(CONTENT) and len(reports) > 3
    assert {total for _, total in reports} == {len(CONTENT)}
    assert Site.asked[-1].endswith(f"fedbo/{fedbo.__version__}")


@pytest.mark.parametrize(
    ("path", "verify", "complaint"),
    [
        ("/gone", good, r"/gone answers 404 \(Not Found\)"),
        ("/truncated", good, "broke off after 1,048,576 of 1,049,576 bytes"),
        ("/data", bad, "is not the data set: its MD5 is 1, expected 2"),
    ],
)
def test_a_failed_download_leaves_what_was_there(
    path: str, verify: object, complaint: str, site: str, tmp_path: Path
) -> None:
    target = tmp_path / "file.bin"
    target.write_bytes(b"the old one")
    with pytest.raises(FetchFailed, match=complaint):
        download(site + path, target, verify, silent)
    assert os.listdir(tmp_path) == ["file.bin"]
    assert target.read_bytes() == b"the old one"


# ---------------------------------------------------------------- fedbo data fetch


def offer(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """Have gleam come from this address, and be whatever comes from there."""
    monkeypatch.setattr(gleam, "ADDRESS", address)
    monkeypatch.setattr(gleam, "verify", good)
    monkeypatch.setattr(gleam, "load", lambda folder: gleam.stand_in())


def test_fetch_and_fetch_again(site: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, site + "/data")
    asked = len(Site.asked)
    for _ in range(2):
        last = run("data", "fetch", "gleam", "--data", tmp_path).splitlines()[-1]
        assert last.startswith(f"gleam is in {tmp_path / 'GLEAM.tar.gz'}: 38 people, ")
    assert len(Site.asked) == asked + 1  # what is there is not fetched again
    assert os.listdir(tmp_path) == ["GLEAM.tar.gz"]
