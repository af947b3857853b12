"""Command-line options of the contests."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from fedbo_paper.contests import outside
from fedbo_paper.contests.contest import POLICIES, RANDOM, SOLO
from fedbo_paper.contests.screen import refuse, say
from fedbo_paper.data.places import user_folder


def parser(description: str | None) -> argparse.ArgumentParser:
    """Create a parser whose help is a module's docstring."""
    first, _, rest = (description or "").partition("\n")
    return argparse.ArgumentParser(
        description=first, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def contest_parser(description: str | None) -> argparse.ArgumentParser:
    """Create a parser with the options of all contests."""
    result = parser(description)
    result.add_argument(
        "--json", type=_writable, metavar="OUT", help="also write the figures to this file"
    )
    result.add_argument(
        "--seeds", type=positive, default=10, metavar="N", help="runs on each target; default: 10"
    )
    add_jobs(result)
    result.add_argument(
        "--targets",
        choices=("even", "odd", "all"),
        default="all",
        help="the tasks that are targets, default: all; a target's peers are all other tasks",
    )
    result.add_argument(
        "--evaluations",
        type=positive,
        default=50,
        metavar="N",
        help="evaluations after the initial points; default: 50",
    )
    result.add_argument(
        "--cache",
        type=Path,
        default=user_folder() / "benchmarks",
        metavar="DIR",
        help="folder where slow results are kept",
    )
    return result


def add_jobs(result: argparse.ArgumentParser) -> None:
    """Add the option --jobs."""
    result.add_argument(
        "--jobs",
        type=positive,
        default=os.cpu_count() or 1,
        metavar="J",
        help="number of processes; default: one for each core",
    )


def add_policies(result: argparse.ArgumentParser) -> None:
    """Add the options that select policies."""
    result.add_argument("--policies", metavar="A,B,...", help="default: all")
    result.add_argument("--no-outside", action="store_true", help="leave out Optuna's samplers")
    result.add_argument(
        "--outside-seeds",
        type=positive,
        default=3,
        metavar="N",
        help="runs of Optuna's slow samplers on each target; default: 3",
    )


def chosen(options: argparse.Namespace) -> list[str]:
    """List the policies that compete; solo always does."""
    known = [*POLICIES, RANDOM, *outside.SAMPLERS]
    named = [name.strip() for name in options.policies.split(",")] if options.policies else known
    for name in named:
        if name not in known:
            raise refuse(f"--policies has {name!r}, expected some of {', '.join(known)}")
    asked = [name for name in known if name in named or name == SOLO]
    if options.no_outside:
        return [name for name in asked if name not in outside.SAMPLERS]
    if not outside.is_installed() and {*asked} & {*outside.SAMPLERS}:
        if options.policies:
            raise refuse(outside.MISSING)
        say(f"Left out {' and '.join(outside.SAMPLERS)}: {outside.MISSING}.")
        return [name for name in asked if name not in outside.SAMPLERS]
    return asked


def positive(text: str) -> int:
    """Parse a whole number of 1 or more."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)


def _writable(text: str) -> Path:
    """Parse a path, and check before hours of work that its folder exists."""
    path = Path(text)
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text}: there is no folder {path.parent}; make it first")
    return path
