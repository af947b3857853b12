"""What the paper leaves open and what was chosen here, and the commands that make each figure."""

from __future__ import annotations

from fedbo.experiments.data import gleam
from fedbo.experiments.logistic import EPOCHS

CHOICES: tuple[tuple[str, str], ...] = (
    (
        "Figure 1: functions",
        "60 instead of 5, with 5 initialisations each as in the paper: with 5 functions the "
        "intervals of figure 1c are about ±0.03, too wide for its claims.",
    ),
    (
        "Figure 1: M besides 100",
        "25 and 50. The kernel has about 36 effective dimensions at 40 observations, so these lie "
        "below, near and above it. M = 10, far below, is drawn beside them for t_n = 40: how "
        "negligible M is depends on which M are compared.",
    ),
    (
        "Figure 1: what the target knows",
        "paper preset: the kernel that functions are drawn from (SE, length scale 0.03, variance "
        "1) and the noise 0.01; scores as they are; f_t is drawn exactly on the 1,000 points. "
        "Default preset: everything is fitted, scores are standardised.",
    ),
    (
        "Figure 1c: t_n",
        "the claims are judged at t_n = 100; the runs with t_n = 40 are in the tables.",
    ),
    (
        "Figure 3d: numbers of agents",
        "7, 14 and 28 fields; 100, 300 and 1,000 by repeating them, each time with new draws.",
    ),
    (
        "Run time",
        "CPU seconds of the target on one core: receiving, fitting and choosing. The claims leave "
        "evaluations out, figure 3 has them in. The peers' work on their messages is not counted.",
    ),
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
        "Maximiser",
        "`refine` (screen and climb), which finds the maximum nearly always; `--maximiser direct` "
        "is DIRECT with 1,000 evaluations. The authors used DIRECT; its options are not known.",
    ),
    (
        "Landmine score",
        "AUC of decision values, which has no noise; `--scoring probability` is the paper's.",
    ),
    (
        "Logistic regression",
        f"mini-batch SGD from zero with a constant rate for {EPOCHS} epochs (`--epochs`), chosen "
        "on people who are not targets; loss: mean cross-entropy and l2/2 of the squared weights, "
        "the bias left out. Mobile phones: half of the points validate, stratified.",
    ),
    ("Boxes", "searched linearly, as the paper's code does; `--box log` on request."),
    (
        "Google glasses: windows",
        f"{gleam.WINDOW:g} seconds, which gives about as many a person as the paper has.",
    ),
    (
        "Default preset",
        "the library's own settings, p_t = 1 − 1/√t among them.",
    ),
    (
        "Smallest differences that matter",
        "AUC 0.01; validation error 0.005, less than one point; simple regret 0.01; a factor of 2 "
        "in time or numbers; an exponent of 0.1 in the number of agents.",
    ),
    (
        "Intervals",
        "95 %, paired: synthetic functions over functions, each the mean of its initialisations; "
        "real data over targets × repeats, so they speak of these six targets.",
    ),
)

COMMANDS: tuple[tuple[str, str], ...] = (
    ("Figure 1", "fedbo reproduce fig1"),
    ("Figure 2", "fedbo reproduce fig2 --only landmine --preset both"),
    ("Figure 3", "fedbo reproduce fig3 --preset both"),
    ("Figure 4", "fedbo reproduce fig4 --preset both"),
    ("Appendix", "fedbo reproduce appendix --preset both"),
    ("Published runs", "fedbo reproduce published"),
    ("Google glasses", "fedbo data fetch gleam && fedbo reproduce fig2 --only glass"),
    ("Everything", "fedbo reproduce all --preset both"),
)
