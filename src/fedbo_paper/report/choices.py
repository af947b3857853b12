"""What the paper leaves open and what was chosen, and the command for each part of the report."""

from __future__ import annotations

from collections.abc import Sequence

from fedbo_paper.experiments.spec import PRESET_NAMES, REAL, Selection
from fedbo_paper.problems.problems import Glass, Har, Landmine

Pairs = tuple[tuple[str, str], ...]


def choices(selections: Sequence[Selection]) -> Pairs:
    """Return what was chosen for the selected experiments, as (what, choice)."""
    specs = {selection.experiment: selection.spec for selection in selections}
    said: list[tuple[str, str]] = []
    if "synthetic" in specs:
        spec = specs["synthetic"]
        count = f"{len(spec.targets_of('fig1'))} × {spec.repeats} initialisations; {_FUNCTIONS}"
        said += (("Figure 1: functions", count), *_SYNTHETIC)
    if "agents" in specs:
        said.append(_AGENTS)
    if {*specs} & {*REAL}:
        said += _REAL
    for spec in specs.values():
        problem = spec.problem
        if isinstance(problem, Har | Glass):
            said.append((f"{spec.title}: model", _REGRESSION.format(problem.epochs)))
        if isinstance(problem, Glass):
            said.append((f"{spec.title}: windows", f"{problem.window:g} seconds"))
        if isinstance(problem, Landmine):
            said.append((f"{spec.title}: score", _SCORES[problem.scoring]))
        if isinstance(problem, Har | Glass | Landmine):
            said.append((f"{spec.title}: box", f"searched on {problem.box} scales"))
    return (*dict.fromkeys(said), *_ALWAYS)


def commands(selections: Sequence[Selection]) -> Pairs:
    """Return the command for each selection's part of the report, with one line per figure.

    >>> from fedbo_paper.experiments.selection import wanted
    >>> commands(wanted(["fig2"], only="har", quick=True, problem={"epochs": 5}))
    (('Activity recognition with mobile phones, paper preset',
      'fedbo reproduce fig2 --only har --quick --epochs 5'),)
    """
    return tuple(
        (f"{selection.spec.title}, {PRESET_NAMES[selection.preset]}", _command(selection))
        for selection in selections
    )


def _command(selection: Selection) -> str:
    options = [f"--only {selection.experiment}"]
    if selection.preset != "paper":
        options.append(f"--preset {selection.preset}")
    if selection.quick:
        options.append("--quick")
    if selection.seed:
        options.append(f"--seed {selection.seed}")
    if selection.maximiser != (selection.spec.maximiser or "refine"):
        options.append(f"--maximiser {selection.maximiser}")
    for name, value in selection.problem.items():
        flag = f"--{name.replace('_', '-')}"
        options.append(flag if value is True else f"{flag} {value}")
    given = " ".join(options)
    return "\n".join(f"fedbo reproduce {figure} {given}" for figure in selection.figures)


_FUNCTIONS = (
    "the paper has 5 × 5, with which the intervals of figure 1c would be too wide to judge its "
    "claims."
)
_SYNTHETIC: Pairs = (
    (
        "Figure 1: M other than 100",
        "25 and 50. The kernel has about 36 effective dimensions at 40 observations, so the three "
        "values of M are below, near and above it. For t_n = 40, M = 10 is shown too: whether the "
        "effect of M is negligible depends on which values are compared.",
    ),
    (
        "Figure 1: what the target knows",
        "With the paper preset, it knows the kernel that functions are drawn from (SE, length "
        "scale 0.03, variance 1) and the noise variance 0.01; scores are not transformed, and f_t "
        "is drawn exactly on the 1,000 points. With the default preset, everything is fitted and "
        "scores are standardised.",
    ),
    (
        "Figure 1: measures",
        "The mean regret over iterations 1 to 50. For figure 1c also the final regret; if the two "
        "disagree, the claim counts as not decided. The measures were chosen after a first look at "
        "other functions.",
    ),
    (
        "Figure 1c: t_n",
        "Drawn and judged at t_n = 100; the runs with t_n = 40 are in the tables.",
    ),
)
_REGRESSION = (
    "Logistic regression, trained by mini-batch SGD from zero with a constant learning rate for {} "
    "epochs. The loss is the mean cross-entropy plus l2/2 times the squared weights without the "
    "bias. Half of the samples are for validation, stratified by class (Google Glass: 100 "
    "samples). The default of 20 epochs was chosen on people who are not targets."
)
_AGENTS = (
    "Figure 3d: numbers of agents",
    "7, 14 and 28 fields; for 100, 300 and 1,000 agents the fields are repeated, with new draws of "
    "their weights.",
)
_REAL: Pairs = (
    (
        "Histories of peers",
        "50 queries of Thompson sampling alone with the same preset, made once for each agent and "
        "seed. Features and messages are drawn again for each run.",
    ),
    (
        "Initial points",
        "Landmine: the published points, if they are in the data folder. Otherwise they are "
        "uniformly random. All methods start from the same points.",
    ),
    ("Figure 4", "Drawn for the first target, as in the paper; judged on all six targets."),
    (
        "Maximiser",
        "`refine` (screen, then climb) nearly always finds the maximum. `--maximiser direct` is "
        "DIRECT with 1,000 evaluations. The authors used DIRECT, with options that are not known.",
    ),
)
_SCORES = {
    "decision": "AUC of decision values, without noise (`--scoring probability` is the paper's)",
    "probability": "AUC of probabilities from Platt scaling, which is noisy, as in the paper",
}
_ALWAYS: Pairs = (
    (
        "Run time",
        "CPU seconds of the target on one core: receiving, fitting and choosing queries. The "
        "claims exclude evaluations, figure 3 includes them. The time that peers need for their "
        "messages is not counted.",
    ),
    ("Default preset", "The library's own settings, including p_t = 1 − 1/√t."),
    (
        "Smallest differences that matter",
        "AUC 0.01; validation error 0.005, less than one sample; mean simple regret 0.01, final "
        "regret 0.005; a factor of 2 in time or in numbers sent; an exponent of 0.1 in the number "
        "of agents.",
    ),
    (
        "Intervals",
        "95 %, paired. Synthetic functions: over functions, each the mean of its initialisations. "
        "Real data: over targets × repeats, so the intervals only describe these six targets and "
        "these histories of their peers.",
    ),
)
