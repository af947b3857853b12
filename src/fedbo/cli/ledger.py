"""``fedbo ledger``: what left this machine and what was in it, and the cost of private releases."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import typer
from numpy.typing import NDArray
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from fedbo.cli import checks, screen
from fedbo.exchange import Entry, ExchangeError, Ledger, Progress
from fedbo.federation import Federation
from fedbo.federation.scalars import Scalars
from fedbo.message import Fingerprint, Message, Release
from fedbo.privacy.statement import broken_promise, factor, statement

_ROW = 10  # numbers in a line
_PLACE = ("agent", "to", "federation")  # columns that have lines of their own if they are too long
_RIGHT = ("no.", "trials", "numbers", "bytes")  # columns of numbers
_NOTHING_LEFT = ("undelivered", "withdrawn", "received")  # actions after which nothing left


def ledger(
    agent: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only messages of this agent.")
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(
            help="The log to read; by default releases.jsonl in FEDBO_STATE, or in the user's "
            "state folder."
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
        "epoch": f"{message.epoch}",
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
    rows = {**about, **header, **about}  # those of ``about`` come first, and replace others
    screen.show(console, screen.pairs(rows))
    if message.kind == "weights":
        _vector(console, "omega, a draw of the feature weights", message.omega)
        return
    if message.kind == "contribution":
        _vector(console, "y, the shape of the mean", message.y)
        return
    if message.kind == "compact":
        _vector(console, "nu, the mean of the leading coordinates", message.nu)
        _vector(console, "counts of trials in the public cells", message.counts)
        return
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
    """Put all attempts to send the same thing to the same place into one row: the last attempt.

    A row ends with "sent" if that was delivered, and with "undelivered" if it was not.
    """
    rows: dict[int, _Row] = {}
    tried: dict[tuple[str, str, str], _Row] = {}  # by what is sent, where to and by which study
    for number, entry in entries.items():
        what = entry.content, entry.to, entry.study
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

    If the lines are too long for the terminal, the agent and the place are in lines of their own,
    each above the entries that it is for.
    """
    found = _by_message(entries)
    rows = [_cells(row) for row in found]
    head, *lines = _aligned(rows, [*rows[0]])
    fits = max(map(cell_len, [head, *lines])) <= console.width
    if not fits:
        head, *lines = _aligned(rows, [name for name in rows[0] if name not in _PLACE], indent=2)
    _print(console, Text(head, style="bold"))
    place: list[str] = []
    for row, line in zip(rows, lines, strict=True):
        if not fits and place != (place := [row[name] for name in _PLACE]):
            agent, to, federation = place
            whole = f"{agent} to {to}" if to else agent
            console.print(Text(f"{whole}, federation {federation}"))
        text = Text(line)
        if not row["what"].endswith("sent"):
            text.stylize("yellow", text.plain.rindex(row["what"]))
        _print(console, text)
    console.print()
    left = [row.entry for row in found if row.entry.action not in _NOTHING_LEFT]
    if any(entry.kind == "release" or entry.kind == "contribution" for entry in entries.values()):
        _say_costs(console, entries)
    size = sum(entry.nbytes for entry in left)
    screen.say(
        console,
        f"{_counted(left)} left this machine, {screen.size(size)} in total. The log is "
        f"{screen.printable(str(path))}. fedbo ledger --show N prints the content of message N.",
    )
    if any(row.entry.action == "undelivered" for row in found):
        screen.say(
            console,
            "A message is not delivered if the exchange could not be reached, or had a later "
            "message under this name.",
        )


def _say_costs(console: Console, entries: Mapping[int, Entry]) -> None:
    """Say what private releases cost, for each federation, and what randomised votes cost."""
    releases: dict[str, dict[str, Release]] = {}
    votes: dict[str, set[tuple[str, float]]] = {}
    for entry in entries.values():
        lasting = entry.federation.rpartition("-")[0]
        content = None
        with contextlib.suppress(ValueError):  # what is damaged is in the list
            content = entry.decoded()
        if isinstance(content, Release):
            releases.setdefault(lasting, {})[entry.content] = content
        elif isinstance(content, Message) and content.local_epsilon is not None:
            votes.setdefault(lasting, set()).add((entry.agent, content.local_epsilon))
    for lasting, found in releases.items():
        known = sorted(found.values(), key=lambda one: one.sequence)
        screen.say(console, f"Private releases of the federation {lasting}", "bold")
        screen.say(console, statement(known))
        if fault := broken_promise(known):
            screen.say(console, f"The promise is broken: {fault}.", "red")
        console.print()
    for lasting, costs in votes.items():
        cost = sum(epsilon for _, epsilon in costs)
        screen.say(console, f"Randomised votes in the federation {lasting}", "bold")
        screen.say(
            console,
            f"What this site votes for was randomised before it left, with ε = {cost:g} for "
            f"{screen.count(len(costs), 'vote')}, and is the same in every message of an agent. "
            "Whoever receives it cannot tell any two sites apart by more than a factor of "
            f"{factor(cost)}. This needs trust in nobody.",
        )
        console.print()


def _counted(left: Sequence[Entry]) -> str:
    """Say how many messages and releases have left, and how often scalars and progress have."""
    times = Counter(_noun(entry) for entry in left)
    counts = [screen.count(times.pop("message", 0), "message")]
    if times.pop("release", 0):
        releases = {entry.content for entry in left if entry.kind == "release"}
        counts.append(screen.count(len(releases), "private release"))
    counts += [f"{noun} {screen.count(n, 'time')}" for noun, n in sorted(times.items())]
    return " and ".join([", ".join(counts[:-1]), counts[-1]] if counts[1:] else counts)


def _noun(entry: Entry) -> str:
    return entry.kind if entry.kind in ("scalars", "progress", "release") else "message"


def _cells(row: _Row) -> dict[str, str]:
    """Return the texts of a row by column. Counts are of messages that left at this line."""
    number, entry, failures = row
    action: str = entry.action
    if action == "undelivered":
        action = f"not delivered ({screen.count(failures, 'attempt')})"
    shows_counts = entry.action not in _NOTHING_LEFT
    counts = {"trials": entry.t_n, "numbers": entry.numbers, "bytes": entry.nbytes}
    cells = {
        "no.": f"{number}",
        "when": _local(entry.when),
        "agent": entry.agent,
        "to": entry.to,
        "federation": entry.federation[:8],
        **{name: f"{count:,}" if shows_counts else "" for name, count in counts.items()},
        "what": action if _noun(entry) == "message" else f"{entry.kind} {action}",
    }
    return {name: screen.printable(text) for name, text in cells.items()}


def _aligned(rows: Sequence[Mapping[str, str]], names: Sequence[str], indent: int = 0) -> list[str]:
    """Return a line of column names, and a line for each row. No cell is broken."""
    columns = []
    for name in names:
        cells = [name, *(row[name] for row in rows)]
        width = max(map(cell_len, cells))
        blanks = [" " * (width - cell_len(cell)) for cell in cells]
        pairs = zip(blanks, cells, strict=True)
        columns.append([b + c if name in _RIGHT else c + b for b, c in pairs])
    return [(" " * indent + "  ".join(line)).rstrip() for line in zip(*columns, strict=True)]


def _print(console: Console, line: Text) -> None:
    """Print a line as it is; a terminal that is too narrow breaks it."""
    console.print(line, soft_wrap=True)


def _show_entry(console: Console, number: int, entry: Entry) -> None:
    title = f"{_noun(entry).capitalize()} {number}, {entry.action} {_local(entry.when)}"
    screen.say(console, title, "bold")
    if entry.content:
        content = entry.decoded()
        if isinstance(content, Message):
            show_message(console, content, {"to": entry.to})
        elif isinstance(content, Release):
            screen.show(console, screen.pairs({"to": entry.to} | _release(content)))
        else:
            screen.show(console, screen.pairs({"to": entry.to} | _other(content)))
        return
    about = {"to": entry.to, "agent": entry.agent, "federation": entry.federation}
    screen.show(console, screen.pairs(about))
    if entry.action == "withdrawn":
        screen.say(console, "The exchange stopped handing out the message; nothing was sent.")


def _release(content: Release) -> dict[str, str]:
    """Return rows with all that a release says."""
    return {
        "by": content.sender,
        "federation": str(Fingerprint(content.fingerprint)),
        "epoch": f"{content.epoch}",
        "release": f"{content.sequence} of {content.releases} planned",
        "members": f"{content.members:,}, with {content.trials:,} trials together",
        "cost": f"ε = {content.epsilon:g} at δ = {content.delta:g} for all planned releases",
        "neighbours": content.neighbours,
        "votes": f"{len(content.votes)} cells in 64ths, with Laplace noise of scale "
        f"{content.votes_scale:g} votes: {', '.join(map(str, content.votes))}",
        "sums": f"{len(content.sums)} numbers in steps of 2⁻²⁰, with Gaussian noise of standard "
        f"deviation {content.sums_deviation:g}: {', '.join(map(str, content.sums))}",
    }


def _other(content: Scalars | Progress) -> dict[str, str]:
    """Return rows with all that scalars or progress say."""
    rows = {"agent": content.sender, "federation": str(Fingerprint(content.fingerprint))}
    if isinstance(content, Scalars):
        scales = ", ".join(f"{scale:g}" for scale in content.length_scales)
        noise = f"{content.noise_variance:g}"
        fitted = {"length scales": scales, "noise variance": noise, "trials": f"{content.t_n:,}"}
        return rows | fitted
    best = "not reported" if content.best is None else repr(content.best)
    saved = "no estimate" if content.saved is None else f"{content.saved:g}"
    return rows | {"trials": f"{content.trials:,}", "best score": best, "trials saved": saved}


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
        _print(console, Text(f"{label if i == 0 else '':>6} {cells}"))
