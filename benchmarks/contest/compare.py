"""Compare policies: the contests on a table of scores, on landmine fields, and on HAR.

The JSON of a contest holds, among others (null stands for what is not defined)

``default``              the name of the default policy
``policies``             the figures of each policy, by its name
  ``regret``             mean regret, by the number of trials
  ``ratio_ei``           its ratio to the regret of EI alone, as [ratio, low, high]
  ``ratio_ts``           its ratio to the regret of TS alone
  ``ratio_best_first``   its ratio to the regret of best-first, if that competed
  ``to_target``          [trials, share]: the trials that runs need to reach what EI alone has on
                         the same target after 20, and the share of runs that get there
  ``seeds``              number of runs on each target
  ``curve``              mean regret after 1, 2, 3, … trials
``best``                 mean best score of each policy, by the number of trials; not for tables
``runs``                 the regret of every run: for each policy targets × seeds × trials, rounded
                         to 6 digits
``targets``              the tasks that were targets, in the order of ``runs``
``peers``                number of peers that a run met
``history``              trials that these peers had made
"""

from __future__ import annotations

import argparse
import inspect
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import figures, grounds, outside, runs
from .figures import Curves, Figures, counted
from .grounds import Boxed, Ground
from .outside import SAMPLERS, TOLD
from .peers import DEFAULT, HISTORIES, HISTORY
from .runs import ALONE, BEST_FIRST, EI, POLICIES, RANDOM, TS
from .terminal import contest_parser, estimate, finish, positive, refuse, say, some
from .terminal import table as show_table

AGAINST = {"ratio_ei": EI, "ratio_ts": TS, "ratio_best_first": BEST_FIRST}

#: What can compete, by its name on the command line.
COMPETITORS = {
    **{name: name for name in (*POLICIES, RANDOM)},
    "best-first": BEST_FIRST,
    "TPE-told-the-best": TOLD,
    **{name: name for name in SAMPLERS if name != TOLD},
}


# Commands


def table() -> None:
    """Compare all policies, and samplers of Optuna and BoTorch, on any table of scores.

    The file has the arrays `accuracy` (tasks x configurations, higher is better) and `config`
    (configurations x D). Each column of `config` should be on a sensible scale; it is mapped to
    [0, 1]. Only listed configurations are evaluated. Each task in turn is the target, and all other
    tasks are its peers, which have made 50 trials alone. Reported is the normalised regret (best of
    the table - best so far) / (best - worst) after 1, 2, 3, 5, 10, 20 and 50 trials, of which 3 are
    common initial points, and how many trials runs need to reach what an agent alone has after 20.
    An agent alone uses expected improvement (EI). Two references share the best settings of all
    peers, which is what people would do instead: `best-first` tries three of them and then uses EI
    alone, and `TPE-told-the-best` is Optuna's TPE after the same three. The paired ratios to EI
    alone and to best-first have 95 % intervals over targets. EI and Thompson sampling (TS) alone
    always run.

    --peers 5 lets each run meet 5 random peers, --history 10 peers with 10 trials. Finished runs
    are stored in --cache, and the JSON has the regret of every run; compare.py explains its keys.

        python benchmarks/table.py PATH.npz --json out.json --seeds 10
        python benchmarks/table.py PATH.npz --policies RGPE,best-first --peers 5 --history 10
    """
    parser = _parser(table)
    parser.add_argument("path", type=Path, metavar="PATH.npz")
    options = parser.parse_args()
    ground = grounds.read_table(options.path)
    n, D = ground.X.shape
    say(f"{options.path.name}: {ground.tasks} tasks, {n} configurations, D = {D}")
    finish(hold(ground, options.path.stem, options), options.json)


def landmine() -> None:
    """Compare policies on 29 landmine fields, with real training.

    Each field tunes the C and gamma of an SVM; the score is the AUC. A regret of 0 is the best
    known AUC of the field (of a 25 x 25 grid and of all runs), and a regret of 1 is the grid's
    median. The contest is held in the paper's linear box and in the log box. Everything else is as
    in table.py; one more table has the mean best AUC. In the JSON, `boxes` has the figures and runs
    of each box.

        FEDBO_DATA=folder python benchmarks/landmine.py --box both --json out.json
    """
    parser = _parser(landmine)
    parser.add_argument("--box", choices=("linear", "log", "both"), default="both")
    options = parser.parse_args()
    boxes: dict[str, Any] = {}
    for box in ("linear", "log") if options.box == "both" else (options.box,):
        fields = grounds.landmine(box, options.cache, options.jobs)
        boxes[box] = hold(fields, f"landmine, {box} box", options)
    first = next(iter(boxes.values()))
    shared = {key: value for key, value in first.items() if key != "runs"}  # they are in the box
    finish(shared | {"boxes": boxes}, options.json)


def har() -> None:
    """Compare policies on 30 people's mobile phones (UCI HAR), with real training.

    Each person tunes the batch size, L2 penalty and learning rate of a logistic regression; the
    score is the validation error. The regret is the error above the person's best known error: the
    best of 256 Sobol points and of all runs. It is not normalised, because for many people half of
    the box has the best error. Everything else is as in table.py; one more table has the mean
    lowest error.

        FEDBO_DATA=folder python benchmarks/har.py --json out.json
    """
    parser = _parser(har)
    parser.add_argument("--box", choices=("linear", "log"), default="linear")
    options = parser.parse_args()
    people = grounds.har(options.box, options.cache, options.jobs)
    result = hold(people, "HAR, error above the best known one of each person", options)
    finish(result | {"box": options.box}, options.json)


# Options


def _parser(command: Callable[[], None]) -> argparse.ArgumentParser:
    """Create the parser of a command, whose help is its docstring."""
    result = contest_parser(inspect.getdoc(command))
    add = result.add_argument
    text = f"some of {', '.join(COMPETITORS)}; default: all; {' and '.join(ALONE)} always compete. "
    text += "Your own: MODULE:CLASS, such as mine:Mine for the class Mine in mine.py in this folder"
    add("--policies", type=_competitors, metavar="A,B,...", help=text)
    add("--no-outside", action="store_true", help="leave out the samplers of Optuna and BoTorch")
    text = "runs of these samplers, which are slow, on a target; default: 3"
    add("--outside-seeds", type=positive, default=3, metavar="N", help=text)
    text = "peers of each run, chosen at random; default: all other tasks"
    add("--peers", type=positive, metavar="N", help=text)
    text = f"trials that peers have made; default: {HISTORY}"
    add("--history", type=positive, default=HISTORY, metavar="T", help=text)
    return result


def _competitors(text: str) -> tuple[str, ...]:
    """Parse names of competitors. A policy with the name MODULE:CLASS can compete from now on."""
    for name in (name.strip() for name in text.split(",") if ":" in name):
        try:
            runs.POLICIES[name] = runs.imported(name)
        except (ImportError, AttributeError, TypeError) as error:
            raise argparse.ArgumentTypeError(f"{name} cannot compete: {error}") from None
        COMPETITORS[name] = name
    return some([*COMPETITORS])(text)


def chosen(options: argparse.Namespace) -> list[str]:
    """List the policies that compete; EI alone and TS alone always do."""
    left_out = {*SAMPLERS} if options.no_outside else set[str]()
    for name in (COMPETITORS[name] for name in options.policies or COMPETITORS):
        if name in SAMPLERS and name not in left_out and not outside.is_installed(name):
            missing = outside.MISSING.format(name, SAMPLERS[name])
            if options.policies:
                raise refuse(missing)
            say(f"{missing}. It is left out.")
            left_out.add(name)
    wanted = {*ALONE, *(COMPETITORS[name] for name in options.policies or COMPETITORS)}
    return [name for name in COMPETITORS.values() if name in wanted - left_out]


# Figures


def hold(ground: Ground, title: str, options: argparse.Namespace) -> Figures:
    """Hold a whole contest, print its tables and return its figures."""
    tasks = runs.targets(ground, options.targets)
    figures.warn_of_few(len(tasks), title)
    curves = runs.compete(ground, chosen(options), options)
    regret = figures.regrets(ground, tasks, curves)
    result = summary(regret, DEFAULT.__name__)
    result |= {"targets": tasks, "tasks": ground.tasks, **_meeting(ground, options)}
    show(result, title + _setting(options), "normalised regret" if ground.normalise else "regret")
    if isinstance(ground, Boxed):
        result["best"] = mean_best(ground, curves)
        rows = [
            [name, *map("{:.5f}".format, by_n.values())] for name, by_n in result["best"].items()
        ]
        columns = ["policy", *result["best"][EI]]
        show_table("mean best score after this many trials", columns, rows)
    return result | {"runs": figures.runs(regret)}


def _meeting(ground: Ground, options: argparse.Namespace) -> Figures:
    """Return what the peers of a run are like."""
    met = options.peers or ground.tasks - 1
    return {"peers": met, "history": options.history, "histories": HISTORIES}


def _setting(options: argparse.Namespace) -> str:
    """Name the options that a table's title should mention."""
    met = f"{options.peers or ''} peer{'' if options.peers == 1 else 's'}".strip()
    trials = f" with {options.history} trials each" if options.history != HISTORY else ""
    return f", {met}{trials}" if options.peers or trials else ""


def summary(regret: Curves, default: str) -> Figures:
    """Compute the figures of a contest from regrets (targets, seeds, trials)."""
    at = {str(n): n - 1 for n in counted(regret[EI].shape[-1])}
    policies: dict[str, Figures] = {}
    for name, values in regret.items():
        policies[name] = {
            "regret": {n: float(values[..., i].mean()) for n, i in at.items()},
            "to_target": figures.to_target(values, regret[EI]),
            "seeds": values.shape[1],
            "curve": values.mean(axis=(0, 1)).tolist(),
        }
        for key, other in AGAINST.items():
            if other in regret:
                policies[name][key] = {
                    n: figures.ratio(values[..., i], regret[other][..., i]) for n, i in at.items()
                }
    return {"default": default, "policies": policies}


def mean_best(ground: Ground, curves: Curves) -> dict[str, dict[str, float]]:
    """Compute the mean best score of each policy, by the number of trials."""
    result = {}
    for name, scores in curves.items():
        mean = figures.best_so_far(ground, scores).mean(axis=(0, 1))
        result[name] = {str(n): float(mean[n - 1]) for n in counted(len(mean))}
    return result


def show(result: Figures, title: str, kind: str = "normalised regret") -> None:
    """Print the figures as tables."""
    policies, default = result["policies"], result["default"]
    at = [*policies[EI]["regret"]]
    labels = {name: f"{name} *" if name == default else name for name in policies}
    show_table(
        f"{title}: mean {kind} after this many trials; trials to the regret of EI alone at 20, and "
        "share of runs that get there (* is the default policy)",
        ["policy", *at, "to EI's at 20", "seeds"],
        [
            [
                labels[name],
                *(f"{policy['regret'][n]:.4f}" for n in at),
                _reached(*policy["to_target"]),
                str(policy["seeds"]),
            ]
            for name, policy in policies.items()
        ],
    )
    for key in (key for key in ("ratio_ei", "ratio_best_first") if key in policies[EI]):
        rows = [
            [labels[name], *(estimate(policy[key][n]) for n in at)]
            for name, policy in policies.items()
            if name != AGAINST[key]
        ]
        show_table(f"ratio to {AGAINST[key]}, paired, 95 % interval", ["policy", *at], rows)


def _reached(trials: float, share: float) -> str:
    if math.isnan(share):
        return "–"
    return f"{trials:.1f} ({share:.0%})" if share else "never"
