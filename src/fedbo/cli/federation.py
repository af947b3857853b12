"""``fedbo federation``: create and show the file that all sites agree on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

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
    " It also sends a tip, which its peers try first: the parameters of the trial that its model "
    "likes best, with each continuous one rounded to one of 16 places; tips=False, or --no-tips, "
    "leaves it out."
)
_SHOWN = 120  # characters of a parameter
_NAMES = 300  # characters of the names of members

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
            help="Hand out private releases only, which together cost each member this ε; see "
            "the privacy table of the file for how many there are, when, and by whom.",
        ),
    ] = None,
    delta: Annotated[float, typer.Option(help="δ of these releases.")] = 1e-5,
    least_trials: Annotated[
        int, typer.Option(help="Contributions from fewer trials are left out.")
    ] = 5,
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
    left_out: list[str] = []
    if from_study is not None:
        from fedbo.optuna.studies import space_of

        space, left_out = space_of(*from_study)
    elif from_space is not None:
        space = _space_in_file(from_space)
    plan = None
    if epsilon is not None:
        plan = Plan(epsilon=epsilon, delta=delta, least_trials=least_trials)
    agreed: dict[str, Any] = {"features": features, "seed": seed, "kind": kind, "tips": tips}
    federation = Federation(space, **agreed, privacy=plan)
    federation.save(out)
    _report(federation, out)
    _next_steps(out, left_out, is_private=plan is not None)


@app.command()
def show(
    file: Annotated[Path, typer.Argument(help="The federation file.")] = Path("federation.toml"),
) -> None:
    """Show what a federation file says, and what a site that joins will send."""
    _report(Federation.load(file), file)


def _space_in_file(path: Path) -> Space:
    try:
        tables = toml.loads(toml.read(path))
        direction = {"direction": tables.pop("direction")} if "direction" in tables else {}
        return toml.read_space({"parameters": tables, **direction})
    except ValueError as error:
        hint = "expected a table for each parameter; --help shows an example"
        raise ValueError(f"{path}: {error}; {hint}") from None


def _report(federation: Federation, path: Path) -> None:
    space = federation.space
    screen.say(f"Federation {path}", "bold")
    screen.say(
        f"Scores are {'minimised' if space.direction == 'minimize' else 'maximised'} over "
        f"{screen.count(len(space.names), 'parameter')}, which span "
        f"{screen.count(space.dimensions, 'dimension')} of the unit cube of the models."
    )
    rows = (
        (name, shortened(repr(parameter), _SHOWN), parameter.axis().size)
        for name, parameter in space.parameters.items()
    )
    screen.table(("parameter", "values", "dimensions"), rows)
    if space.listed is not None:
        points = screen.count(len(space.listed), "point")
        screen.say(f"Only the {points} that the file lists may be tried.")
    screen.facts(
        {
            "features": f"{federation.features}, kernel {federation.kernel}, "
            f"seed {federation.seed}",
            "length scale": f"{federation.length_scale:.6g} on the unit cube",
            "noise": f"{federation.noise_variance:.6g}, as a variance of standardised scores",
            "message": f"{federation.sends}{' with a tip' * federation.sends_tips}, "
            f"about {screen.size(_HEADER + federation.sent_bytes)} each with a signature",
            "fingerprint": f"{federation.fingerprint}, the same at all sites that agree on this",
        }
    )
    screen.say(f"{_who(federation)}\n")
    screen.say(
        f"A site sends {_KINDS[federation.sends]}.{_TIP * federation.sends_tips} "
        "The message also has the name of the site, how many trials it has, a counter, "
        "the fingerprint and a signature. It has "
        f"no score, no data, no code, and {'no other' if federation.sends_tips else 'no'} trial. "
        f"{_who_learns(federation)}"
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
        f"{screen.count(plan.releases, 'private release')} by {plan.by!r}, for which each member "
        f"pays at most ε = {plan.epsilon:g} at δ = {plan.delta:g}. Members with fewer than "
        f"{screen.count(plan.least_trials, 'trial')} are left out. {when}"
    )


def _who(federation: Federation) -> str:
    """Say whose messages are accepted."""
    if not federation.members:
        return (
            "No members are listed, so anyone who can write to the exchange can take part under "
            "any name that is not known yet. To admit members only, list their keys in a section "
            "[members]; fedbo identity show prints a site's key."
        )
    return (
        f"Only messages signed by its {screen.count(len(federation.members), 'member')} are "
        f"accepted: {shortened(', '.join(sorted(federation.members)), _NAMES)}."
    )


def _next_steps(path: Path, left_out: Sequence[str], *, is_private: bool) -> None:
    if left_out:
        screen.say("\nLeft out; these stay each site's own:", "yellow")
        for remark in left_out:
            screen.say(f"• {screen.printable(remark)}", indent=2)
        screen.say(
            "To share one of them, suggest it in every trial, with the same range, or with the "
            "same list of choices that are strings, numbers, bools or None."
        )
    folder = "" if is_private else "a folder that all sites can reach, or "
    screen.say(
        f"\nWritten to {path}. Give every site this very file: messages from sites with other "
        f"values are refused. Each site then uses FederatedSampler({str(path)!r}, EXCHANGE) as the "
        f"sampler of its study. EXCHANGE is {folder}the https:// address of a hub, where fedbo hub "
        "create puts this file for those who are invited."
    )
