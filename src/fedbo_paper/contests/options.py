"""Command-line options of the contests."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from fedbo_paper.contests import outside
from fedbo_paper.contests.best_first import BEST_FIRST
from fedbo_paper.contests.contest import ALONE, HISTORY, POLICIES, RANDOM
from fedbo_paper.contests.outside import SAMPLERS, TOLD
from fedbo_paper.contests.screen import refuse, say
from fedbo_paper.data.places import user_folder

#: What can compete, by its name on the command line.
COMPETITORS = {
    **{name: name for name in (*POLICIES, RANDOM)},
    "best-first": BEST_FIRST,
    "TPE-told-the-best": TOLD,
    **{name: name for name in SAMPLERS if name != TOLD},
}


def parser(description: str | None) -> argparse.ArgumentParser:
    """Create a parser whose help is a module's docstring."""
    first, _, rest = (description or "").partition("\n")
    return argparse.ArgumentParser(
        description=first, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def contest_parser(description: str | None) -> argparse.ArgumentParser:
    """Create a parser with the options of all contests."""
    result = parser(description)
    add = result.add_argument
    add_json(result)
    add("--seeds", type=positive, default=10, metavar="N", help="runs on a target; default: 10")
    add_jobs(result)
    text = "tasks that are targets, default: all; a target's peers may be any other tasks"
    add("--targets", choices=("even", "odd", "all"), default="all", help=text)
    text = "trials of each run, the initial points included; default: 50"
    add("--trials", type=positive, default=50, metavar="N", help=text)
    folder, text = user_folder() / "benchmarks", "folder where slow results are kept"
    add("--cache", type=Path, default=folder, metavar="DIR", help=text)
    return result


def add_jobs(result: argparse.ArgumentParser) -> None:
    """Add the option --jobs."""
    cores, text = os.cpu_count() or 1, "number of processes; default: one for each core"
    result.add_argument("--jobs", type=positive, default=cores, metavar="J", help=text)


def add_json(result: argparse.ArgumentParser) -> None:
    """Add the option --json."""
    text = "also write the figures to this file"
    result.add_argument("--json", type=_writable, metavar="OUT", help=text)


def add_policies(result: argparse.ArgumentParser) -> None:
    """Add the options that select policies."""
    text = f"some of {', '.join(COMPETITORS)}; default: all; {' and '.join(ALONE)} always compete"
    add = result.add_argument
    add("--policies", type=some([*COMPETITORS]), metavar="A,B,...", help=text)
    add("--no-outside", action="store_true", help="leave out the samplers of Optuna and BoTorch")
    text = "runs of these samplers, which are slow, on a target; default: 3"
    add("--outside-seeds", type=positive, default=3, metavar="N", help=text)


def add_peers(result: argparse.ArgumentParser) -> None:
    """Add the options that say which peers a target meets."""
    add, text = result.add_argument, "peers of each run, chosen at random; default: all other tasks"
    add("--peers", type=positive, metavar="N", help=text)
    text = f"trials that peers have made, 1 to {HISTORY}; default: {HISTORY}"
    add("--history", type=_history, metavar="T", help=text)
    text = "hold the contest among K sites that start at once, instead of with peers that have run"
    add("--together", type=positive, metavar="K", help=text)


def read(result: argparse.ArgumentParser) -> argparse.Namespace:
    """Parse the command line of a contest, and refuse options that exclude each other."""
    given = result.parse_args()
    if given.together is not None:
        if given.together < 2:
            result.error(f"--together is {given.together}, expected 2 or more sites")
        for option in ("peers", "history"):
            if getattr(given, option) is not None:
                result.error(
                    f"--together and --{option} exclude each other: sites that start together "
                    "have no peers that have run before; leave one of them out"
                )
        for name in given.policies or ():
            if COMPETITORS[name] in (BEST_FIRST, *SAMPLERS):
                result.error(
                    f"--together excludes {name}, which exchanges no messages while it runs: leave "
                    "it out of --policies"
                )
    given.history = given.history or HISTORY
    return given


def chosen(options: argparse.Namespace) -> list[str]:
    """List the policies that compete; EI alone and TS alone always do."""
    left_out = {*SAMPLERS} if options.no_outside else set[str]()
    if options.together:
        left_out = {BEST_FIRST, *SAMPLERS}
    for name in (COMPETITORS[name] for name in options.policies or COMPETITORS):
        if name in SAMPLERS and name not in left_out and not outside.is_installed(name):
            missing = outside.MISSING.format(name, SAMPLERS[name])
            if options.policies:
                raise refuse(missing)
            say(f"{missing}. It is left out.")
            left_out.add(name)
    named = {*ALONE, *(COMPETITORS[name] for name in options.policies or COMPETITORS)}
    return [name for name in COMPETITORS.values() if name in named - left_out]


def some(known: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    """Create a parser of names that are separated by commas."""

    def read(text: str) -> tuple[str, ...]:
        given = [name.strip() for name in text.split(",")]
        for name in given:
            if name not in known:
                raise argparse.ArgumentTypeError(
                    f"{name!r} is unknown, expected some of {', '.join(known)}"
                )
        return tuple(name for name in known if name in given)

    return read


def positive(text: str) -> int:
    """Parse a whole number of 1 or more."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)


def _history(text: str) -> int:
    """Parse the length of a history."""
    if not text.isdecimal() or not 1 <= int(text) <= HISTORY:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to {HISTORY}")
    return int(text)


def _writable(text: str) -> Path:
    """Parse a path, and check before hours of work that its folder exists."""
    path = Path(text)
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text}: there is no folder {path.parent}; make it first")
    return path
