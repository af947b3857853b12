"""``fedbo ledger``: what left this machine and what was in it, and the cost of private releases."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.text import Text

from fedbo.cli import checks, screen
from fedbo.exchange import Entry, Ledger
from fedbo.federation.federation import Federation
from fedbo.federation.shared import Shared
from fedbo.message import Fingerprint, Heard, Message, Release
from fedbo.message.compact import Compact
from fedbo.message.message import Belief, Contribution, Weights
from fedbo.privacy.statement import broken_promise, statement

_NOTHING_LEFT = ("undelivered", "withdrawn", "received")  # actions after which nothing left


def ledger(
    log: Annotated[
        Path | None,
        typer.Option(
            help="The log to read; by default ledger.jsonl in FEDBO_STATE, or in the user's state "
            "folder."
        ),
    ] = None,
    show: Annotated[
        int | None, typer.Option(metavar="N", help="Show the content of message N.", min=1)
    ] = None,
) -> None:
    """List every message that left this machine: when, where to, and how much was in it.

    Private releases that were made or received here are listed too, with what they cost. The log
    itself has one JSON object in each line.
    """
    if log is not None and not log.is_file():
        raise checks.refused(f"there is no file {log}", "--log")
    book = Ledger(log)
    entries = book.read()
    if show is not None:
        if show > len(entries):
            checks.end(f"there is no message {show} in {book.path}, the last one is {len(entries)}")
        _show_entry(show, entries[show - 1])
    elif entries:
        _list(entries)
        screen.say(f"The log is {book.path}. fedbo ledger --show N prints message N.")
    else:
        typer.echo(
            f"{book.path} has no entry: no study of this user has sent a message. Nodes on Flower "
            "have ledgers of their own, see --log."
        )


def show_message(
    message: Message, about: Mapping[str, str], federation: Federation | None = None
) -> None:
    """Print a whole message: its header, and all its numbers.

    Rows of ``about`` come first, and replace rows of the header. A federation tells what a tip
    means.
    """
    header = {
        "agent": message.sender,
        "federation": str(Fingerprint(message.fingerprint)),
        "counter": f"{message.sequence}",
        "trials": f"{message.t_n:,}",
        "size": f"{screen.count(message.nbytes, 'byte')} ({message.kind})",
    }
    arrays: dict[str, NDArray[Any]]
    match message.body:
        case Weights() as body:
            arrays = {"omega, a draw of the feature weights": body.omega}
        case Belief() as body:
            header["incumbent"] = f"{body.incumbent:.6g}, the best standardised score"
            arrays = {
                "nu, the mean of the feature weights": body.nu,
                "covariance, the covariance of the feature weights": body.covariance,
            }
        case Compact() as body:
            if body.tip:
                header["tip"] = _tip(message, federation)
            arrays = {
                "nu, the mean of the leading coordinates": body.nu,
                "counts, counts of trials in the public cells": body.counts,
            }
        case Contribution() as body:
            header["vote"] = f"cell {body.cell}, which holds the best trial"
            arrays = {"y, the shape of the mean": body.y}
    screen.facts({**about, **header, **about})
    for meaning, numbers in arrays.items():
        screen.say(meaning, "bold")
        text = np.array2string(numbers, threshold=sys.maxsize, precision=4, suppress_small=True)
        Console().print(Text(text), soft_wrap=True)


def _tip(message: Message, federation: Federation | None) -> str:
    """Say which point a message recommends: its parameters, or its number."""
    x = None if federation is None else Shared.of(federation).tip(message)
    if federation is None or x is None:
        return f"point 0x{message.tip.hex()} of the federation's lattice"
    params = federation.space.decode(x)
    return ", ".join(f"{name} = {value!r}" for name, value in params.items())


def _list(entries: Iterable[Entry]) -> None:
    """Print a line for the last that happened to each message at each place, and what it cost."""
    latest: dict[object, tuple[int, Entry]] = {}
    failures: Counter[object] = Counter()
    for number, entry in enumerate(entries, start=1):
        key: object = (entry.content or number, entry.to, entry.study)
        failures[key] += entry.action == "undelivered"
        latest.pop(key, None)
        latest[key] = number, entry
    rows = []
    for attempts, (number, entry) in latest.items():
        what = f"{'release ' * (entry.kind == 'release')}{entry.action}"
        if entry.action == "undelivered":
            what = f"not delivered ({screen.count(failures[attempts], 'attempt')})"
        much = ("", "") if entry.action in _NOTHING_LEFT else (entry.t_n, entry.nbytes)
        rows.append((number, _local(entry.when), entry.agent, entry.to, *much, what))
    screen.table(("no.", "when", "agent", "to", "trials", "bytes", "what"), rows)
    sent = {entry.content for _, entry in latest.values() if entry.action == "sent"}
    left = [
        entry
        for _, entry in latest.values()
        if entry.action not in _NOTHING_LEFT
        and not (entry.action == "handed out" and entry.content in sent)  # that is the same message
    ]
    _say_costs(entry for _, entry in latest.values())
    screen.say(
        f"\n{screen.count(len(left), 'message')} left this machine, "
        f"{screen.size(sum(entry.nbytes for entry in left))} in total."
    )


def _say_costs(entries: Iterable[Entry]) -> None:
    """Say what private releases cost, for each federation."""
    releases: dict[str, dict[str, Release]] = {}
    for entry in entries:
        content: Heard | None = None
        with contextlib.suppress(ValueError):  # what is damaged is in the list
            content = entry.message()
        if isinstance(content, Release):
            releases.setdefault(entry.federation, {})[entry.content] = content
    for federation, by_content in releases.items():
        known = sorted(by_content.values(), key=lambda release: release.sequence)
        screen.say(f"\nPrivate releases of the federation {federation}", "bold")
        screen.say(statement(known))
        if fault := broken_promise(known):
            screen.say(f"The promise is broken: {fault}.", "red")


def _show_entry(number: int, entry: Entry) -> None:
    what = "Release" if entry.kind == "release" else "Message"
    screen.say(f"{what} {number}, {entry.action} {_local(entry.when)}", "bold")
    about = {"to": entry.to}
    if not entry.content:
        screen.facts(about | {"agent": entry.agent, "federation": entry.federation})
        screen.say("The exchange stopped handing out the message; nothing was sent.")
        return
    content = entry.message()
    if isinstance(content, Message):
        show_message(content, about, _known(content))
    else:
        screen.facts(about | _release(content))


def _known(message: Message) -> Federation | None:
    """Return the federation of a message, if its file is in this folder."""
    with contextlib.suppress(OSError, ValueError):
        federation = Federation.load("federation.toml")
        federation.check(message)
        return federation
    return None


def _release(release: Release) -> dict[str, str]:
    """Return rows with all that a release says."""
    return {
        "by": release.sender,
        "federation": str(Fingerprint(release.fingerprint)),
        "release": f"{release.sequence} of {release.releases} planned",
        "members": f"{release.members:,}, with {release.trials:,} trials together",
        "cost": f"ε = {release.epsilon:g} at δ = {release.delta:g} for all planned releases",
        "neighbours": release.neighbours,
        "votes": f"{len(release.votes)} cells in 64ths, with Laplace noise of scale "
        f"{release.votes_scale:g} votes: {', '.join(map(str, release.votes))}",
        "sums": f"{len(release.sums)} numbers in steps of 2⁻²⁰, with Gaussian noise of standard "
        f"deviation {release.sums_deviation:g}: {', '.join(map(str, release.sums))}",
    }


def _local(when: str) -> str:
    """Return a time of the log in local time, or as it is if it is not in the format of ISO."""
    try:
        return datetime.fromisoformat(when).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return when
