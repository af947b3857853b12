"""What the paper leaves open and what was chosen, and the commands that made each part."""

from __future__ import annotations

from collections.abc import Sequence

from fedbo_paper.experiments.spec import Selection
from fedbo_paper.problems.problems import Glass, Har, Landmine

Pairs = tuple[tuple[str, str], ...]


def choices(selections: Sequence[Selection]) -> Pairs:
    """What was chosen for the experiments that were selected."""
    specs = {selection.experiment: selection.spec for selection in selections}
    said: list[tuple[str, str]] = []
    if "synthetic" in specs:
        spec = specs["synthetic"]
        said += _synthetic(len(spec.targets_of("fig1")), spec.repeats)
    if "agents" in specs:
        said.append(_AGENTS)
    if {*specs} & {"landmine", "har", "glass"}:
        said += _REAL
    for spec in specs.values():
        problem = spec.problem
        if isinstance(problem, Har | Glass):
            said.append((f"{spec.title}: model", _regression(problem.epochs)))
        if isinstance(problem, Glass):
            said.append((f"{spec.title}: windows", f"{problem.window:g} seconds"))
        if isinstance(problem, Landmine):
            said.append((f"{spec.title}: score", _SCORES[problem.scoring]))
        if isinstance(problem, Har | Glass | Landmine):
            said.append((f"{spec.title}: box", f"searched on {problem.box} scales"))
    return (*dict.fromkeys(said), *_ALWAYS)


def commands(selections: Sequence[Selection]) -> Pairs:
    """The command that makes each selection's part of the report.

    >>> from fedbo_paper.experiments.reproduce import wanted
    >>> commands(wanted(["fig2"], only="har", quick=True, problem={"epochs": 5}))
    (('Activity recognition with mobile phones, paper preset',
      'fedbo reproduce fig2 --only har --quick --epochs 5'),)
    """
    return tuple((_title(selection), _command(selection)) for selection in selections)


def _title(selection: Selection) -> str:
    return f"{selection.spec.title}, {selection.preset} preset"


def _command(selection: Selection) -> str:
    """For several figures, a line each."""
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


def _synthetic(functions: int, repeats: int) -> Pairs:
    return (
        (
            "Figure 1: functions",
            f"{functions} × {repeats} initialisations; the paper has 5 × 5, with which "
            "the intervals of figure 1c would be too wide for its claims.",
        ),
        (
            "Figure 1: M besides 100",
            "25 and 50. The kernel has about 36 effective dimensions at 40 observations, so these "
            "lie below, near and above it. M = 10, far below, is drawn beside them for t_n = 40: "
            "how negligible M is depends on which M are compared.",
        ),
        (
            "Figure 1: what the target knows",
            "paper preset: the kernel that functions are drawn from (SE, length scale 0.03, "
            "variance 1) and the noise 0.01; scores as they are; f_t is drawn exactly on the 1,000 "
            "points. Default preset: everything is fitted, scores are standardised.",
        ),
        (
            "Figure 1: measures",
            "the mean regret over iterations 1 to 50; for figure 1c also the last regret, and "
            "where the two disagree the claim counts as not decided. Chosen after a first look at "
            "other functions.",
        ),
        (
            "Figure 1c: t_n",
            "drawn and judged at t_n = 100; the runs with t_n = 40 are in the tables.",
        ),
    )


def _regression(epochs: int) -> str:
    return (
        f"logistic regression by mini-batch SGD from zero with a constant rate for {epochs} "
        "epochs; loss: mean cross-entropy and l2/2 of the squared weights, the bias left out. Half "
        "of the points validate, stratified (Google glasses: 100 points). The default of 20 epochs "
        "was chosen on people who are no targets."
    )


_AGENTS = (
    "Figure 3d: numbers of agents",
    "7, 14 and 28 fields; 100, 300 and 1,000 by repeating them, with new draws of their weights.",
)
_REAL: Pairs = (
    (
        "Peers' histories",
        "50 queries of Thompson sampling alone with the same preset, once for each agent and seed; "
        "features and messages are drawn anew for each run.",
    ),
    (
        "Initial points",
        "landmine: the published ones, where the data folder has them; elsewhere uniformly random. "
        "The same for every method.",
    ),
    (
        "Figure 4",
        "drawn for the first target, as in the paper; judged on all six.",
    ),
    (
        "Maximiser",
        "`refine` (screen and climb) finds the maximum nearly always; `--maximiser direct` is "
        "DIRECT with 1,000 evaluations. The authors used DIRECT; its options are not known.",
    ),
)
_SCORES = {
    "decision": "AUC of decision values, which has no noise (the paper's: `--scoring probability`)",
    "probability": "AUC of probabilities by Platt's scaling, which is noisy, as in the paper",
}
_ALWAYS: Pairs = (
    (
        "Run time",
        "CPU seconds of the target on one core: receiving, fitting and choosing. The claims leave "
        "evaluations out, figure 3 has them in. The peers' work on their messages is not counted.",
    ),
    ("Default preset", "the library's own settings, p_t = 1 − 1/√t among them."),
    (
        "Smallest differences that matter",
        "AUC 0.01; validation error 0.005, less than one point; mean simple regret 0.01, last "
        "regret 0.005; a factor of 2 in time or numbers; an exponent of 0.1 in the number of "
        "agents.",
    ),
    (
        "Intervals",
        "95 %, paired: synthetic functions over functions, each the mean of its initialisations; "
        "real data over targets × repeats, so they speak of these six targets and of these "
        "histories of their peers.",
    ),
)
