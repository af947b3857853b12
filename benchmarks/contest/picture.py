"""Draw the mean regret against trials from the JSON of table.py, landmine.py and har.py.

There is one panel for each file and box.

    python benchmarks/picture.py OUT.png lcbench.json svm.json
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from fedbo.insight.colours import COLOURS

from . import terminal
from .figures import Figures, counted
from .grounds import SVM_TABLE
from .outside import TOLD, TPE
from .runs import BEST_FIRST, EI

TITLES = {
    "svm": "SVM table",
    "lcbench": "LCBench",
    "har": "activity recognition",
    Path(SVM_TABLE).stem: "SVM table",
    "linear": "landmine, linear box",
    "log": "landmine, log box",
}


def drawn(panels: dict[str, Figures]) -> Figure:
    """Draw one panel for each contest.

    Args:
        panels: The figures of the contests, by title.
    """
    figure = Figure(figsize=(4.6 * len(panels), 4.2), layout="constrained")
    axes_of = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (heading, result) in zip(axes_of, panels.items(), strict=True):
        policies, default = result["policies"], result["default"]
        looks = {  # by policy: its name, colour and line
            default: (f"fedbo ({default})", COLOURS[0], "-"),
            EI: ("EI alone", "black", "-"),
            BEST_FIRST: (BEST_FIRST, COLOURS[1], "-"),
            TOLD: (TOLD, COLOURS[2], "-"),
            TPE: (TPE, COLOURS[2], "--"),
            **{name: (name, COLOURS[3], "-") for name in policies if ":" in name},  # one's own
        }
        for name in (name for name in looks if name in policies):
            curve, (text, colour, line) = np.array(policies[name]["curve"]), looks[name]
            if (seeds := policies[name]["seeds"]) < policies[EI]["seeds"]:
                text = f"{text}, {seeds} seed{'s' if seeds > 1 else ''} only"
            shown = np.where(curve > 0, curve, np.nan)  # a logarithmic axis cannot show 0
            axes.plot(range(1, len(curve) + 1), shown, line, color=colour, label=text, lw=1.6)
        last = len(policies[EI]["curve"])
        axes.set(xscale="log", yscale="log", xlim=(1, last), xlabel="trials")
        axes.set_xticks(counted(last), [str(n) for n in counted(last)])
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.minorticks_off()
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_title(heading, loc="left", fontsize="medium")
    axes_of[0].set_ylabel("mean regret")
    handles, names = axes_of[0].get_legend_handles_labels()
    columns = len(panels)
    figure.legend(handles, names, loc="outside lower center", ncols=columns, frameon=False)
    return figure


def read(path: Path) -> dict[str, Figures]:
    """Read the contests of a file by title: one, or one for each box."""
    try:
        result = json.loads(path.read_text())
        by_title = result.get("boxes", {path.stem: result})
        contests = {TITLES.get(title, title): contest for title, contest in by_title.items()}
        for contest in contests.values():
            contest["policies"][EI]["curve"]
    except (OSError, ValueError, LookupError, AttributeError, TypeError) as error:
        raise terminal.refuse(
            f"{path} is not the JSON of a contest ({type(error).__name__}: {error}), expected what "
            "table.py, landmine.py or har.py write with --json"
        ) from None
    return contests


def main() -> None:
    """Run the command."""
    parser = terminal.parser(__doc__)
    parser.add_argument("picture", type=Path, metavar="OUT.png")
    parser.add_argument("contests", type=Path, nargs="+", metavar="FILE.json")
    options = parser.parse_args()
    panels: dict[str, Figures] = {}
    for path in options.contests:
        panels |= read(path)
    options.picture.parent.mkdir(parents=True, exist_ok=True)
    drawn(panels).savefig(options.picture, dpi=110)
    print(options.picture)
