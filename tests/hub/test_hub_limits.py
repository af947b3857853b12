"""Limits and the log, below the API."""

from __future__ import annotations

import io
import json
import logging
import threading
from typing import Any

import pytest

from fedbo.hub.limits import Buckets, network
from fedbo.hub.log import Handler, Log, as_text, scrubbed
from fedbo.hub.tokens import new_secret, new_token


def test_a_bucket_fills_up_again_but_never_above_the_burst() -> None:
    buckets = Buckets(rate=2.0, burst=4.0)
    assert [buckets.take("a", now=0.0) for _ in range(5)] == [0.0] * 4 + [0.5]
    assert buckets.take("b", now=0.0) == 0.0
    assert buckets.take("a", now=0.5) == 0.0
    assert buckets.take("a", now=0.5) == 0.5
    assert [buckets.take("a", now=1000.0) for _ in range(5)] == [0.0] * 4 + [0.5]


def test_a_clock_that_stands_still_gives_nothing() -> None:
    buckets = Buckets(rate=1.0, burst=1.0)
    assert buckets.take("a", now=5.0) == 0.0
    assert all(buckets.wait("a", now=5.0) == 1.0 for _ in range(3))


def test_what_buckets_remember_is_bounded() -> None:
    buckets = Buckets(rate=1.0, burst=1.0, most=100)
    for i in range(1000):
        buckets.take(i, now=0.0)
    assert len(buckets._levels) == 100
    assert buckets.take(999, now=0.0) > 0.0


def test_something_expensive_counts_as_more_but_is_never_impossible() -> None:
    buckets = Buckets(rate=1.0, burst=8.0)
    assert buckets.take("a", now=0.0, cost=5.0) == 0.0
    assert buckets.take("a", now=0.0, cost=5.0) == 2.0
    assert buckets.take("a", now=0.0) == 0.0
    assert buckets.take("b", now=0.0, cost=100.0) == 0.0
    assert buckets.take("b", now=0.0, cost=100.0) == 8.0


def test_no_rate_is_no_limit() -> None:
    assert all(Buckets(0.0, 0.0).take("a") == 0.0 for _ in range(100))


def test_an_ipv6_network_counts_as_one_address() -> None:
    assert network("2001:db8::1") == network("2001:db8::ffff:1") != network("2001:db8:1::1")
    assert network("::ffff:192.0.2.7") == "192.0.2.7"
    assert len(network("x" * 1000)) == 64


def test_lines_that_nobody_reads_do_not_hold_up_the_hub() -> None:
    class Stuck(io.StringIO):
        goes = threading.Event()

        def write(self, text: str) -> int:
            self.goes.wait(30.0)
            return super().write(text)

    stream = Stuck()
    log = Log("json", stream)
    log.write("first")
    for i in range(30_000):
        log.write("request", number=i)
    stream.goes.set()
    log.close()
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    left_out = sum(line["lines"] for line in lines if line["event"] == "left-out")
    assert left_out > 0
    assert len([line for line in lines if line["event"] != "left-out"]) + left_out == 30_001


def test_a_closed_stream_is_no_error() -> None:
    stream = io.StringIO()
    log = Log("plain", stream)
    stream.close()
    log.write("request")
    log.close()


@pytest.mark.parametrize("style", ["json", "plain"])
def test_an_error_leaves_its_traceback_and_no_secret(style: Any) -> None:
    stream = io.StringIO()
    log = Log(style, stream)
    token, secret = new_token("operator"), new_secret()

    def fail(given: str) -> None:
        raise ValueError(f"bad {given}")

    try:
        try:
            fail(token)
        except ValueError as error:
            raise RuntimeError(secret) from error
    except RuntimeError as error:
        log.error("failed", error, request="r1")
        logging.getLogger("test").addHandler(handler := Handler(log))
        logging.getLogger("test").warning("it was %s", token, exc_info=error)
        logging.getLogger("test").removeHandler(handler)
    log.close()
    written = stream.getvalue()
    assert token not in written and secret not in written
    assert "in fail" in written and "RuntimeError" in written and "r1" in written
    assert "ValueError: bad (hidden)" in written


def test_a_line_for_people_cannot_move_the_cursor() -> None:
    assert "\x1b" not in as_text({"time": 0.0, "event": "request", "who": "a\x1b[2J\nb"})
    assert "\n" not in as_text({"time": 0.0, "event": "request", "who": "a\nb"})


@pytest.mark.parametrize("name", ["a status=200", "a\tb", "a=b", '"', 'a" b="', "a\u00a0b", "a\nb"])
def test_a_name_cannot_pretend_to_be_another_field(name: str) -> None:
    line = as_text({"time": 0.0, "event": "request", "who": name, "status": 401})
    start, end = '00:00:00 request who="', '" status=401'
    assert line.startswith(start) and line.endswith(end)
    assert '"' not in line[len(start) : -len(end)].replace('\\"', "")


def test_everything_secret_looks_like_a_secret() -> None:
    for secret in (new_token("member"), new_token("operator"), new_secret()):
        assert scrubbed(f"x {secret} y") == "x (hidden) y"
