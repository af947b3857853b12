"""``fedbo federation``: create and show the file that all sites agree on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedbo.cli import checks, screen
from fedbo.federation import file as toml
from fedbo.federation.federation import Federation
from fedbo.federation.plan import Plan
from fedbo.message import Kind
from fedbo.outside import shortened
from fedbo.space import Space

#: Bytes of a signed message besides its numbers, if its sender has a name of usual length.
_HEADER = 152
_KINDS = {
    "compact": "roughly what its model knows and does not know, and in which of some public cells "
    "of the space it made none, one, two or more trials",
    "weights": "one random draw from its model",
    "belief": "the mean and covariance of its model, from which its trials can be computed, and "
    "its best standardised score",
    "contribution": "the public cell of the space that has its best trial, and the rough shape of "
    "its model",
}
_TIP = (
    "It also sends a tip, which its peers try first: the parameters of the trial that its model "
    "likes best, with each continuous one rounded to one of 16 places. "
)
_STAYS = "A site sends no trial: neither parameters nor scores, neither data nor code."
_STAYS_BUT_TIP = (
    "A site sends no score, no data, no code, and no parameters of a trial but the tip, which it "
    "may leave out (tips=False, or --no-tips)."
)
_SHOWN = 120  # characters of a parameter
_MEMBERS = 20  # names that are shown

app = typer.Typer(no_args_is_help=True, help="Create or show the file that all sites agree on.")


@app.command()
def new(
    out: Annotated[Path, typer.Argument(help="The file to write.")] = Path("federation.toml"),
    from_study: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="STORAGE NAME", help="Take the space from this study's trials."),
    ] = None,
    from_space: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Take the space from this TOML file.")
    ] = None,
    features: Annotated[
        int, typer.Option(help="Number of shared features; more are more precise.", min=1)
    ] = 100,
    seed: Annotated[int, typer.Option(help="Seed of the shared features.", min=0)] = 0,
    kind: Annotated[
        Kind,
        typer.Option(help="Message: compact (TipsThenPool), weights (FTS), belief (RGPE, TAF)."),
    ] = "compact",
    tips: Annotated[
        bool,
        typer.Option(
            " /--no-tips",
            help="Let no compact message name a tip, the point that its sender recommends.",
        ),
    ] = True,
    epsilon: Annotated[
        float | None,
        typer.Option(
            metavar="EPSILON",
            help="Hand out private releases only, which together cost each member this ε.",
        ),
    ] = None,
    delta: Annotated[float, typer.Option(help="δ of these releases.")] = 1e-5,
    releases: Annotated[int, typer.Option(help="Number of these releases.", min=1)] = 1,
    by: Annotated[str, typer.Option(help="The party that makes these releases.")] = "hub",
    least_trials: Annotated[
        int, typer.Option(help="Contributions from fewer trials are left out.", min=1)
    ] = 5,
    least_members: Annotated[
        int | None,
        typer.Option(
            help="A hub makes a release when so many members have contributed, by default when it "
            "is more than noise; with 0 only its operator does.",
            min=0,
        ),
    ] = None,
    days: Annotated[
        float, typer.Option(help="Days between such releases, and before the first.", min=0)
    ] = 0.0,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Create the file that every site of a federation needs.

    From a study: fedbo federation new --from-study sqlite:///site.db my-study

    From a file: fedbo federation new --from-space space.toml, where the file has one table for each
    parameter, and scores are maximised unless it says otherwise:

    \b
      direction = "minimize"
      C = { type = "float", low = 1e-4, high = 10.0, log = true }
      depth = { type = "int", low = 1, high = 8 }
      kernel = { type = "categorical", choices = ["rbf", "linear"] }
      weight = { type = "categorical", choices = ["balanced", { none = true }] }  # None
    """
    if (from_study is None) == (from_space is None):
        raise checks.refused("give exactly one of the two", "--from-study / --from-space")
    checks.writable("OUT", out)
    if out.exists() and not force:
        problem = f"{out} exists, and sites may rely on it: choose another name, or use --force"
        raise checks.refused(problem, "OUT")
    if epsilon is None and (releases, by, least_members, days) != (1, "hub", None, 0.0):
        raise checks.refused("private releases need it", "--epsilon")
    left_out: list[str] = []
    try:
        if from_study is not None:
            checks.require("optuna", {"optuna": "optuna"})
            from fedbo.optuna.studies import space_of

            space, left_out = space_of(*from_study)
        elif from_space is not None:
            space = _space_in_file(from_space)
        plan = None
        if epsilon is not None:
            plan = Plan(
                epsilon=epsilon,
                delta=delta,
                releases=releases,
                by=by,
                least_trials=least_trials,
                least_members=-1 if least_members is None else least_members,
                days=days,
            )
        agreed: dict[str, Any] = {"features": features, "seed": seed, "kind": kind, "tips": tips}
        federation = Federation(space, **agreed, privacy=plan)
        federation.save(out)
    except (ValueError, OSError) as error:
        checks.end(str(error))
    console = Console()
    _report(console, federation, out)
    _next_steps(console, out, left_out)


@app.command()
def show(
    file: Annotated[Path, typer.Argument(help="The federation file.")] = Path("federation.toml"),
) -> None:
    """Show what a federation file says, and what a site that joins will send."""
    _report(Console(), checks.federation("FILE", file), file)


def _space_in_file(path: Path) -> Space:
    try:
        tables = toml.loads(toml.read(path))
        direction = {"direction": tables.pop("direction")} if "direction" in tables else {}
        return toml.read_space({"parameters": tables, **direction})
    except OSError as error:
        raise checks.unreadable("--from-space", path, error, "a TOML file") from None
    except ValueError as error:
        hint = "expected a table for each parameter; --help shows an example"
        raise ValueError(f"{path}: {error}; {hint}") from None


def _report(console: Console, federation: Federation, path: Path) -> None:
    space = federation.space
    screen.say(console, f"Federation {path}", "bold")
    screen.say(
        console,
        f"Scores are {'minimised' if space.direction == 'minimize' else 'maximised'} over "
        f"{screen.count(len(space.names), 'parameter')}, which span "
        f"{screen.count(space.dimensions, 'dimension')} of the unit cube of the models.",
    )
    screen.show(console, _parameters(federation), above=1, below=1)
    if space.listed is not None:
        points = screen.count(len(space.listed), "point")
        screen.say(console, f"Only the {points} that the file lists may be tried.\n")
    screen.show(console, _agreed(federation), below=1)
    screen.say(console, f"{_who(federation)}\n")
    screen.say(
        console,
        f"A site sends {screen.count(federation.sent_numbers, 'number')}: "
        f"{_KINDS[federation.sends]}. {_TIP if federation.sends_tips else ''}The message also has "
        "the name of the site, how many trials it has, a counter, the fingerprint and a signature. "
        f"{_STAYS_BUT_TIP if federation.sends_tips else _STAYS} {_who_learns(federation)}",
    )


def _who_learns(federation: Federation) -> str:
    """Say who learns what of what a site sends."""
    plan = federation.privacy
    if plan is None:
        return "Peers learn roughly where its scores are good, because that is what helps them."
    when = f"{plan.by!r} decides when."
    if plan.least_members:
        when = (
            f"A hub makes one when {plan.least_members:,} members have contributed, at the "
            f"earliest {plan.days:g} days after the one before."
        )
    return (
        f"This is for {plan.by!r}, who must be trusted with it. Peers hear nothing but "
        f"{screen.count(plan.releases, 'private release')} by {plan.by!r}, which together cost "
        f"each member at most ε = {plan.epsilon:g} at δ = {plan.delta:g}. Members with fewer than "
        f"{screen.count(plan.least_trials, 'trial')} are left out. {when}"
    )


def _who(federation: Federation) -> str:
    """Say whose messages are accepted."""
    if not federation.members:
        return (
            "No members are listed, so anyone who can write to the exchange can take part, signed "
            "or not, under any name that is not known yet. To admit members only, list their keys "
            "in a section [members]; fedbo identity show prints a site's key."
        )
    names = ", ".join(sorted(federation.members)[:_MEMBERS])
    more = len(federation.members) - _MEMBERS
    return (
        f"Only messages signed by its {screen.count(len(federation.members), 'member')} are "
        f"accepted: {names}{f', … {more} more' if more > 0 else ''}."
    )


def _next_steps(console: Console, path: Path, left_out: Sequence[str]) -> None:
    if left_out:
        screen.say(console, "\nLeft out; each site samples these on its own:", "yellow")
        for remark in left_out:
            screen.say(console, f"• {screen.printable(remark)}", indent=2)
        screen.say(
            console,
            "To share one of them, suggest it in every trial, with the same range, or with the "
            "same list of choices that are strings, numbers, bools or None.",
        )
    screen.say(
        console,
        f"\nWritten to {path}. Give every site this very file: messages from sites with other "
        f"values are refused. Each site then uses FederatedSampler({str(path)!r}, EXCHANGE) as the "
        "sampler of its study. EXCHANGE is a folder that all sites can reach, or the https:// "
        "address of a hub, where fedbo hub create puts this file for those who are invited.",
    )


def _parameters(federation: Federation) -> Table:
    grid = screen.grid("parameter", "values")
    grid.add_column("dimensions", justify="right", no_wrap=True)
    for name, parameter in federation.space.parameters.items():
        cells = (name, shortened(repr(parameter), _SHOWN), str(parameter.axis().size))
        grid.add_row(*(Text(screen.printable(cell)) for cell in cells))
    return grid


def _agreed(federation: Federation) -> Table:
    scale = federation.length_scale
    scales = (scale,) if isinstance(scale, float) else scale
    return screen.pairs(
        {
            "features": f"{federation.features}, kernel {federation.kernel}, "
            f"seed {federation.seed}",
            "length scale": f"{', '.join(f'{number:.6g}' for number in scales)} on the unit cube",
            "noise": f"{federation.noise_variance:.6g}, as a variance of standardised scores",
            "message": f"{federation.sends}{' with a tip' * federation.sends_tips}: "
            f"{screen.count(federation.sent_numbers, 'number')}, about "
            f"{screen.size(_HEADER + federation.sent_bytes)} each",
            "fingerprint": f"{federation.fingerprint}",
            "": "sites with the same fingerprint agree on everything above",
        }
    )
