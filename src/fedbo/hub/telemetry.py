"""What a hub says about itself: a line in the log for each request, and numbers for Prometheus.

No secret is in either: tokens, invitations and cookies are never logged, and of a path only the
template of its route.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from fedbo.outside import printable, shortened

#: Where the numbers of several workers meet; prometheus_client looks when it is imported.
METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
#: Tokens, invitations, cookies and their hashes are all at least this long.
_SECRET = re.compile(r"[A-Za-z0-9_+/=-]{24,}")
_NOT_PLAIN = re.compile(r'[\s="]')


class Log:
    """Writes lines. All methods may be called from any thread.

    Args:
        style: "json": one JSON object in each line; "plain": text for people.
        stream: Where lines go; standard error by default.
    """

    def __init__(self, style: Literal["json", "plain"], stream: TextIO | None = None) -> None:
        self._style, self._stream = style, sys.stderr if stream is None else stream
        self._lock = threading.Lock()

    def write(self, event: str, **fields: object) -> None:
        """Write a line.

        Args:
            event: What happened, in one word.
            **fields: What to say about it. Empty ones are left out.
        """
        line = {"time": time.time(), "event": event, **fields}
        text = as_json(line) if self._style == "json" else as_text(line)
        with self._lock:
            try:
                self._stream.write(text + "\n")
                self._stream.flush()
            except (OSError, ValueError):  # nobody reads it any more
                pass

    def error(self, event: str, error: BaseException, **fields: object) -> None:
        """Write a line with the traceback of an error, without what looks like a secret."""
        text = scrubbed("".join(traceback.format_exception(error)), 20_000)
        self.write(event, **fields, traceback=text.rstrip())


class LogHandler(logging.Handler):
    """Passes on what libraries log."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        text = scrubbed(record.getMessage())
        if record.exc_info and record.exc_info[1] is not None:
            self._log.error("library", record.exc_info[1], logger=record.name, text=text)
        else:
            self._log.write("library", logger=record.name, text=text)


def as_json(line: Mapping[str, Any]) -> str:
    """Return a line as a JSON object.

    >>> as_json({"time": 0.0, "event": "request", "status": 200, "problem": ""})
    '{"time":"1970-01-01T00:00:00.000Z","event":"request","status":200}'
    """
    when = datetime.fromtimestamp(line["time"], UTC).isoformat(timespec="milliseconds")
    shown = {name: value for name, value in line.items() if value not in ("", None)}
    shown["time"] = when.replace("+00:00", "Z")
    return json.dumps(shown, ensure_ascii=False, separators=(",", ":"))


def as_text(line: Mapping[str, Any]) -> str:
    """Return a line as text for people.

    >>> as_text({"time": 0.0, "event": "request", "method": "GET", "status": 200, "problem": ""})
    '00:00:00 request method=GET status=200'
    >>> as_text({"time": 0.0, "event": "request", "who": "ann status=500"})
    '00:00:00 request who="ann status=500"'
    """
    when = datetime.fromtimestamp(line["time"], UTC).strftime("%H:%M:%S")
    rest = {name: value for name, value in line.items() if name not in ("time", "event")}
    trace = rest.pop("traceback", "")
    words = [when, line["event"]]
    words += [f"{name}={_word(value)}" for name, value in rest.items() if value not in ("", None)]
    return printable(" ".join(words)) + ("\n" + trace if trace else "")


def scrubbed(text: str, most: int = 500) -> str:
    """Leave out what may be a secret.

    >>> scrubbed("the token fedbo-m-0123456789012345678901234567890123456789012 is wrong")
    'the token (hidden) is wrong'
    """
    return _SECRET.sub("(hidden)", shortened(text, most))


def _word(value: object) -> str:
    """Return a value as one word, in quotes if it could be taken for more."""
    text = str(value)
    return text if _NOT_PLAIN.search(text) is None else json.dumps(text, ensure_ascii=False)


class Metrics:
    """The numbers of one worker. With several workers, `render` adds them up."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        requests = "Requests by route, method and status."
        self._requests = self._counter("requests", requests, "route", "method", "status")
        self._seconds = Histogram(
            "fedbo_hub_request_seconds",
            "How long requests took.",
            ("route", "method"),
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._refused = self._counter("refused", "Requests refused, by problem.", "problem")
        self._published = self._counter("messages_published", "Messages taken.")

    def _counter(self, name: str, about: str, *labels: str) -> Counter:
        return Counter(f"fedbo_hub_{name}", about, labels, registry=self._registry)

    def request(self, route: str, method: str, status: int, seconds: float, problem: str) -> None:
        """Count a request.

        Args:
            route: The template of its path, never the path.
            method: Its method.
            status: The status of the answer.
            seconds: How long it took.
            problem: For which problem it was refused; empty if it was not.
        """
        self._requests.labels(route, method, status).inc()
        self._seconds.labels(route, method).observe(seconds)
        if problem:
            self._refused.labels(problem).inc()

    def published(self) -> None:
        """Count a message that was taken."""
        self._published.inc()

    def render(self, counts: Mapping[str, int]) -> bytes:
        """Return all numbers as Prometheus reads them.

        Args:
            counts: How many of each thing the database has.
        """
        shown = self._registry
        if os.environ.get(METRICS_FOLDER):
            shown = CollectorRegistry()
            MultiProcessCollector(shown)  # type: ignore[no-untyped-call]
        now = CollectorRegistry()
        now.register(_Counts(counts))
        return generate_latest(shown) + generate_latest(now)


class _Counts(Collector):
    """What the database says."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        self._counts = counts

    def collect(self) -> Iterator[Metric]:
        for name, count in self._counts.items():
            yield GaugeMetricFamily(f"fedbo_hub_{name}", f"How many {name} there are.", count)
