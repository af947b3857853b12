"""``fedbo ledger``: what left this machine and what was in it, and the cost of private releases."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.text import Text

from fedbo.cli import checks, screen
from fedbo.exchange import Entry, ExchangeError, Ledger, Progress
from fedbo.federation.federation import Federation
from fedbo.message import Fingerprint, Heard, Message, Release
from fedbo.privacy.statement import broken_promise, factor, statement

_ROW = 10  # numbers in a line
_NOTHING_LEFT = ("undelivered", "withdrawn", "received")  # actions after which nothing left


def ledger(
    agent: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only messages of this agent.")
    ] = None,
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
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, with contents in base64.")
    ] = False,
) -> None:
    """List every message that left this machine: when, where to, and how much was in it.

    Private releases that were made or received here are listed too, with what they cost.
    """
    if log is not None and not log.is_file():
        raise checks.refused(f"there is no file {log}", "--log")
    try:
        book = Ledger(log)
        with checks.warnings_as_lines():
            every = dict(enumerate(book.read(), start=1))
    except ExchangeError as error:
        checks.end(str(error))
    entries = {number: entry for number, entry in every.items() if agent in (None, entry.agent)}
    if show is not None and show not in entries:
        of = "" if agent is None else f" of {agent!r}"
        known = f"expected {min(entries)} to {max(entries)}" if entries else "there are none"
        checks.end(f"--show {show}: no message{of} has this number in {book.path}; {known}")
    if as_json:
        typer.echo(_json(entries if show is None else {show: entries[show]}))
    elif show is not None:
        try:
            _show_entry(Console(), show, entries[show])
        except ValueError as error:
            checks.end(f"The content cannot be read: {error}. --json prints it as it was sent.")
    elif entries:
        _list(Console(), entries, book.path)
    else:
        text = f"{book.path} has no entry: no study of this user has sent a message."
        text += " Nodes on Flower have ledgers of their own, see --log."
        if others := ", ".join(sorted({entry.agent for entry in every.values()})):
            text = f"No message of {agent!r} has left, only of {others}: see {book.path}."
        typer.echo(screen.printable(text))


def show_message(
    console: Console,
    message: Message,
    about: Mapping[str, str],
    federation: Federation | None = None,
) -> None:
    """Print a whole message: its header, and all its numbers in rows.

    Args:
        console: Where to print.
        message: The message.
        about: Rows to print first; they replace rows of the header with the same name.
        federation: That of the message, which tells what its tip means; None if it is not known.
    """
    header = {
        "agent": message.sender,
        "federation": str(Fingerprint(message.fingerprint)),
        "counter": f"{message.sequence}",
        "trials": f"{message.t_n:,}",
        "size": f"{screen.count(message.numbers, 'number')} ({message.kind}), "
        f"{screen.count(message.nbytes, 'byte')}",
    }
    if message.kind == "belief":
        header["incumbent"] = f"{message.incumbent:.6g}, the best standardised score"
    if message.tip:
        header["tip"] = _tip(message, federation)
    if message.kind == "contribution":
        header["vote"] = f"cell {message.cell}, which holds the best trial"
        if message.local_epsilon is not None:
            header["vote"] = f"cell {message.cell}, randomised with ε = {message.local_epsilon:g}"
    screen.show(console, screen.pairs({**about, **header, **about}))
    if message.kind == "weights":
        _vector(console, "omega, a draw of the feature weights", message.omega)
    elif message.kind == "contribution":
        _vector(console, "y, the shape of the mean", message.y)
    elif message.kind == "compact":
        _vector(console, "nu, the mean of the leading coordinates", message.nu)
        _vector(console, "counts of trials in the public cells", message.counts)
    else:
        _vector(console, "nu, the mean of the feature weights", message.nu)
        screen.say(console, "\ncovariance of the feature weights, lower triangle by rows", "bold")
        for i, row in enumerate(message.covariance):
            _rows(console, row[: i + 1], f"{i}")


def _tip(message: Message, federation: Federation | None) -> str:
    """Say which point a message recommends: its parameters, or its number."""
    x = None if federation is None else federation.tip(message)
    if federation is None or x is None:
        return f"point 0x{message.tip.hex()} of the federation's lattice"
    params = federation.space.decode(x)
    return ", ".join(f"{name} = {value!r}" for name, value in params.items())


class _Row(NamedTuple):
    """A line of the list: what happened to a message, after so many attempts that failed."""

    number: int
    entry: Entry
    failures: int


def _by_message(entries: Mapping[int, Entry]) -> list[_Row]:
    """Put all attempts to send a message to one place into one row: the last attempt.

    A row ends with "sent" if it was delivered, and with "undelivered" if it was not.
    """
    rows: dict[int, _Row] = {}
    tried: dict[object, _Row] = {}  # by what is sent, where to and by which study
    for number, entry in entries.items():
        what = entry.content, entry.to, entry.study, entry.progress
        before, failures = tried.get(what), int(entry.action == "undelivered")
        if before is not None and "undelivered" in (before.entry.action, entry.action):
            del rows[before.number]
            failures += before.failures
        rows[number] = row = _Row(number, entry, failures)
        if entry.action in ("sent", "undelivered"):
            tried[what] = row
    return [*rows.values()]


def _list(console: Console, entries: Mapping[int, Entry], path: Path) -> None:
    """Print one line for each message, by the number of its last entry, and the totals.

    The agent and the place are in lines of their own, each above the entries that it is for.
    """
    rows = _by_message(entries)
    _print(console, _line("no.", "when", "trials", "numbers", "bytes", "what"), "bold")
    place = ""
    for number, entry, failures in rows:
        to = f"{entry.agent} to {entry.to}" if entry.to else entry.agent
        if place != (place := f"{to}, federation {entry.federation}"):
            _print(console, screen.printable(place))
        has_left = entry.action not in _NOTHING_LEFT
        action = "release " if entry.kind == "release" else ""
        action += entry.action
        if entry.action == "undelivered":
            action = f"not delivered ({screen.count(failures, 'attempt')})"
        t_n, numbers, nbytes = (
            (entry.t_n, entry.numbers, entry.nbytes) if has_left else ("", "", "")
        )
        line = _line(number, _local(entry.when), t_n, numbers, nbytes, action)
        _print(console, screen.printable(line), "" if has_left else "yellow")
    console.print()
    if any(entry.kind in ("release", "contribution") for entry in entries.values()):
        _say_costs(console, entries)
    left = [row.entry for row in rows if row.entry.action not in _NOTHING_LEFT]
    messages = screen.count(sum(entry.kind != "release" for entry in left), "message")
    if releases := {entry.content for entry in left if entry.kind == "release"}:
        messages += f" and {screen.count(len(releases), 'private release')}"
    screen.say(
        console,
        f"{messages} left this machine, {screen.size(sum(entry.nbytes for entry in left))} in "
        f"total. The log is {screen.printable(str(path))}. fedbo ledger --show N prints the "
        "content of message N.",
    )
    if any(row.entry.action == "undelivered" for row in rows):
        screen.say(
            console,
            "A message is not delivered if the exchange could not be reached, or had a later "
            "message under this name.",
        )


def _line(
    number: object, when: str, trials: object, numbers: object, nbytes: object, what: str
) -> str:
    return f"{number:>6}  {when:<19}  {trials:>7}  {numbers:>7}  {nbytes:>9}  {what}"


def _say_costs(console: Console, entries: Mapping[int, Entry]) -> None:
    """Say what private releases cost, for each federation, and what randomised votes cost."""
    releases: dict[str, dict[str, Release]] = {}
    votes: dict[str, set[tuple[str, float]]] = {}
    for entry in entries.values():
        content: Heard | None = None
        with contextlib.suppress(ValueError):  # what is damaged is in the list
            content = entry.message()
        if isinstance(content, Release):
            releases.setdefault(entry.federation, {})[entry.content] = content
        elif content is not None and content.local_epsilon is not None:
            votes.setdefault(entry.federation, set()).add((entry.agent, content.local_epsilon))
    for federation, by_content in releases.items():
        known = sorted(by_content.values(), key=lambda release: release.sequence)
        screen.say(console, f"Private releases of the federation {federation}", "bold")
        screen.say(console, statement(known))
        if fault := broken_promise(known):
            screen.say(console, f"The promise is broken: {fault}.", "red")
        console.print()
    for federation, costs in votes.items():
        cost = sum(epsilon for _, epsilon in costs)
        screen.say(console, f"Randomised votes in the federation {federation}", "bold")
        screen.say(
            console,
            f"What this site votes for was randomised before it left, with ε = {cost:g} for "
            f"{screen.count(len(costs), 'vote')}, and is the same in every message of an agent. "
            "Whoever receives it cannot tell any two sites apart by more than a factor of "
            f"{factor(cost)}. This needs trust in nobody.",
        )
        console.print()


def _show_entry(console: Console, number: int, entry: Entry) -> None:
    what = "Release" if entry.kind == "release" else "Message"
    screen.say(console, f"{what} {number}, {entry.action} {_local(entry.when)}", "bold")
    about = {"to": entry.to}
    if entry.progress is not None:
        about["shown"] = _progress(entry.progress)
    if not entry.content:
        about |= {"agent": entry.agent, "federation": entry.federation}
        screen.show(console, screen.pairs(about))
        screen.say(console, "The exchange stopped handing out the message; nothing was sent.")
        return
    content = entry.message()
    if isinstance(content, Message):
        show_message(console, content, about)
    else:
        screen.show(console, screen.pairs(about | _release(content)))


def _progress(progress: Progress) -> str:
    """Say what the page of a hub shows of an agent."""
    text = screen.count(progress.trials, "trial")
    text += "" if progress.best is None else f", best score {progress.best!r}"
    return text if progress.saved is None else f"{text}, trials saved {progress.saved:g}"


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


def _json(entries: Mapping[int, Entry]) -> str:
    rows = [{"number": number} | msgspec.to_builtins(entry) for number, entry in entries.items()]
    text = msgspec.json.format(msgspec.json.encode(rows)).decode()
    # JSON does not escape these control characters, and a terminal may obey them.
    return re.sub("[\x7f-\x9f]", lambda found: f"\\u{ord(found[0]):04x}", text)


def _local(when: str) -> str:
    """Return a time of the log in local time, or as it is if it is not in the format of ISO."""
    try:
        return datetime.fromisoformat(when).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return when


def _vector(console: Console, title: str, values: NDArray[Any]) -> None:
    screen.say(console, f"\n{title}", "bold")
    for i in range(0, len(values), _ROW):
        _rows(console, values[i : i + _ROW], f"{i}")


def _rows(console: Console, values: NDArray[Any], label: str) -> None:
    """Print the values in lines of ten; the first line has a label."""
    shown = "9.4f" if values.dtype.kind == "f" else "9d"
    for i in range(0, len(values), _ROW):
        cells = "".join(f"{value:{shown}}" for value in values[i : i + _ROW])
        _print(console, f"{label if i == 0 else '':>6} {cells}")


def _print(console: Console, line: str, style: str = "") -> None:
    """Print a line as it is; a terminal that is too narrow breaks it."""
    console.print(Text(line, style=style), soft_wrap=True)
