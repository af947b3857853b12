"""What is said of each figure, for those who see it and for those who do not."""

from __future__ import annotations

from typing import NamedTuple


class Words(NamedTuple):
    """A figure's title, its caption, and what it shows for those who do not see it."""

    title: str
    caption: str
    alt: str


_ERRORS = "Shaded: one standard error on either side of the mean."
_TIME = (
    "Best performance so far against CPU seconds, evaluations included, on a logarithmic axis; "
    "50 iterations, M = 100, mean over initialisations."
)
WORDS: dict[str, Words] = {
    "fig1": Words(
        "Figure 1: synthetic functions",
        "Simple regret of TS and FTS, averaged over functions and initialisations: the effect of "
        "M when peers have (a) few and (b) many observations, and (c) peers whose functions are "
        "far away. Shaded: one standard error, over functions.",
        "Three panels of simple regret against iterations for TS and FTS.",
    ),
    "fig2": Words(
        "Figure 2: performance against the length of a message",
        "Best performance after the last iteration against the parameters each peer hands out, "
        "for M = 50, 100, 150, 200: the nearer to the bottom left, the better. TS receives "
        "nothing and is drawn as a level; RGPE and TAF, whose messages are equally long, stand a "
        "little apart. Hollow and dotted: the authors' published runs. Bars: one standard error "
        "over all runs; the differences between targets are in it.",
        "Three panels, one a data set, of final performance against parameters per peer for FTS, "
        "RGPE and TAF, with the level of TS.",
    ),
    "fig3": Words(
        "Figure 3: performance against run time, and run time against the number of agents",
        f"(a)–(c) {_TIME} The target is the first agent. (d) Total CPU seconds of a run against "
        f"the number of peers, both axes logarithmic. {_ERRORS}",
        "Three panels of best performance against CPU seconds for TS, FTS, RGPE and TAF, and one "
        "of total CPU seconds against the number of agents for FTS, RGPE and TAF.",
    ),
    "fig4": Words(
        "Figure 4: growing t_n",
        "Best performance so far when messages are sent once, and when peers go on and send a new "
        f"message before every iteration. The target is the first agent, M = 100. {_ERRORS}",
        "Three panels, one a data set, of best performance against iterations for TS, FTS with "
        "messages sent once, and FTS with new messages before every iteration.",
    ),
    "appendix-landmine": Words(
        "Appendix: landmine detection, the other five targets",
        f"{_TIME} {_ERRORS}",
        "Five panels, one a field, of best performance against CPU seconds for four methods.",
    ),
    "appendix-glass": Words(
        "Appendix: Google Glass, the other five targets",
        f"{_TIME} {_ERRORS}",
        "Five panels, one a person, of best performance against CPU seconds for four methods.",
    ),
    "appendix-har": Words(
        "Appendix: mobile phones, the other five targets",
        f"{_TIME} {_ERRORS}",
        "Five panels, one a person, of best performance against CPU seconds for four methods.",
    ),
    "landmine-curves": Words(
        "Landmine detection beside the published curves",
        "Mean best AUC over fields 0–5 and their initialisations: the curves that the authors "
        f"published, and fedbo with the paper's settings and with its own. {_ERRORS}",
        "Four panels, one a method, of mean best AUC against iterations: published, paper preset "
        "and default preset.",
    ),
    "published": Words(
        "The published setting itself",
        "Mean best AUC from the published initial points, scored by SVC(probability=True) and "
        f"maximised by DIRECT as the authors did, beside their curves. {_ERRORS} Right: the mean "
        "difference of runs with the same field and initial points, in two standard errors.",
        "Two panels, TS and FTS at M = 100, of mean best AUC against iterations, ours and "
        "published, and one of their difference.",
    ),
    "diagnostics": Words(
        "What a message's query is worth",
        "The target's score where a peer's message is largest, beside that of a random point and "
        "of the peer's own best point, which would have to be shown to be shared. Bars: one "
        "standard error.",
        "Mean score of three kinds of query with standard errors: a random point, the point "
        "a message proposes, and the peer's best point.",
    ),
}
