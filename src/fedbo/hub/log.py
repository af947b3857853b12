"""The log of a hub: one line for each request, to standard error, and never a secret in it.

A thread writes the lines, so that a terminal or a pipe that does not keep up cannot hold up the
hub. If too many lines wait, lines are left out, and a line says how many.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
import time
import traceback
from collections import deque
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

import msgspec

from fedbo.outside import printable, shortened

_MOST_WAITING = 10_000  # lines
_PAUSE = 0.02  # seconds in which lines gather, so that one write has many
_LAST = 2.0  # seconds that the last lines have when the hub stops
#: Tokens, invitations, cookies and their hashes are all at least this long.
_SECRET = re.compile(r"[A-Za-z0-9_+/=-]{24,}")
_NOT_PLAIN = re.compile(r'[\s="]')
_encoder = msgspec.json.Encoder()


class Log:
    """Writes lines. All methods may be called from any thread.

    Args:
        style: "json": one JSON object in each line; "plain": text for people.
        stream: Where lines go; standard error by default.
    """

    def __init__(self, style: Literal["json", "plain"], stream: TextIO | None = None) -> None:
        self._style, self._stream = style, sys.stderr if stream is None else stream
        self._waiting: deque[dict[str, Any]] = deque()
        self._left_out = 0
        self._something, self._is_closed = threading.Event(), False
        self._thread = threading.Thread(target=self._run, name="fedbo-log", daemon=True)
        self._thread.start()

    def write(self, event: str, **fields: object) -> None:
        """Write a line.

        Args:
            event: What happened, in one word.
            **fields: What to say about it. Empty ones are left out.
        """
        if len(self._waiting) >= _MOST_WAITING:
            self._left_out += 1
            return
        self._waiting.append({"time": time.time(), "event": event, **fields})
        if not self._something.is_set():
            self._something.set()

    def error(self, event: str, error: BaseException, **fields: object) -> None:
        """Write a line with the traceback of an error, without the values of variables.

        Args:
            event: What happened, in one word.
            error: The error. What looks like a secret in its text is left out.
            **fields: What to say about it.
        """
        self.write(event, **fields, traceback=_traceback(error))

    def close(self) -> None:
        """Write what waits, and stop."""
        self._is_closed = True
        self._something.set()
        self._thread.join(_LAST)

    def _run(self) -> None:
        while not self._is_closed:
            self._something.wait()
            if not self._is_closed:
                time.sleep(_PAUSE)
            self._something.clear()
            self._flush()
        self._flush()

    def _flush(self) -> None:
        lines = [self._waiting.popleft() for _ in range(len(self._waiting))]
        if self._left_out:
            lines.append({"time": time.time(), "event": "left-out", "lines": self._left_out})
            self._left_out = 0
        show = as_json if self._style == "json" else as_text
        try:
            self._stream.write("".join(show(line) + "\n" for line in lines))
            self._stream.flush()
        except (OSError, ValueError):  # nobody reads it any more
            pass


class Handler(logging.Handler):
    """Passes on what libraries log, and requests that did not reach the application.

    Args:
        log: Where it goes.
    """

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        if (fields := getattr(record, "fedbo", None)) is not None:
            self._log.write("request", **fields)
            return
        text = scrubbed(record.getMessage())
        if record.exc_info and record.exc_info[1] is not None:
            self._log.error("library", record.exc_info[1], logger=record.name, text=text)
        else:
            self._log.write("library", logger=record.name, text=text)


def as_json(line: dict[str, Any]) -> str:
    """Return a line as a JSON object.

    >>> as_json({"time": 0.0, "event": "request", "status": 200, "problem": ""})
    '{"time":"1970-01-01T00:00:00.000Z","event":"request","status":200}'
    """
    when = datetime.fromtimestamp(line["time"], UTC).isoformat(timespec="milliseconds")
    shown = {name: value for name, value in line.items() if value not in ("", None)}
    return _encoder.encode({**shown, "time": when.replace("+00:00", "Z")}).decode()


def as_text(line: dict[str, Any]) -> str:
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


def _word(value: object) -> str:
    """Return a value as one word, in quotes if it could be taken for more."""
    text = str(value)
    return text if _NOT_PLAIN.search(text) is None else json.dumps(text, ensure_ascii=False)


def scrubbed(text: str) -> str:
    """Leave out what may be a secret.

    >>> scrubbed("the token fedbo-m-0123456789012345678901234567890123456789012 is wrong")
    'the token (hidden) is wrong'
    """
    return _SECRET.sub("(hidden)", shortened(text, 500))


def _traceback(error: BaseException) -> str:
    lines: list[str] = []
    while True:
        lines += traceback.format_tb(error.__traceback__)
        lines.append(f"{type(error).__name__}: {scrubbed(str(error))}")
        cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if cause is None or len(lines) > 200:
            return "\n".join(line.rstrip() for line in lines)
        lines.append("This was raised while this was handled:")
        error = cause
