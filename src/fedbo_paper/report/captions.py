"""The title, caption and alternative text of each figure."""

from __future__ import annotations

from typing import NamedTuple


class Words(NamedTuple):
    """A figure's title, its caption, and a description for readers who cannot see it."""

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
        "very different. Shaded: one standard error over functions.",
        "Three panels of simple regret against iterations for TS and FTS.",
    ),
    "fig2": Words(
        "Figure 2: performance against the length of a message",
        "Best performance after the last iteration against the number of parameters that each "
        "peer sends, for M = 50, 100, 150, 200. Points closer to the bottom left are better. TS "
        "receives nothing and is drawn as a horizontal line. Messages of RGPE and TAF are almost "
        "equally long; their points are drawn slightly apart. Hollow and dotted: the authors' "
        "published runs. Bars: one standard error over all runs, which includes the differences "
        "between targets.",
        "Three panels, one for each data set, of final performance against parameters per peer "
        "for FTS, RGPE and TAF, with a horizontal line for TS.",
    ),
    "fig3": Words(
        "Figure 3: performance against run time, and run time against the number of agents",
        f"(a)–(c) {_TIME} The target is the first agent. (d) Total CPU seconds of a run against "
        f"the number of peers, on two logarithmic axes. {_ERRORS}",
        "Three panels of best performance against CPU seconds for TS, FTS, RGPE and TAF, and one "
        "of total CPU seconds against the number of agents for FTS, RGPE and TAF.",
    ),
    "fig4": Words(
        "Figure 4: growing t_n",
        "Best performance so far if messages are sent once, and if peers continue and send a new "
        f"message before every iteration. The target is the first agent, M = 100. {_ERRORS}",
        "Three panels, one for each data set, of best performance against iterations for TS, FTS "
        "with messages sent once, and FTS with new messages before every iteration.",
    ),
    **{
        f"appendix-{experiment}": Words(
            f"Appendix: {title}, the other five targets",
            f"{_TIME} {_ERRORS}",
            f"Five panels, one for each {agent}, of best performance against CPU seconds for four "
            "methods.",
        )
        for experiment, title, agent in (
            ("landmine", "landmine detection", "field"),
            ("glass", "Google Glass", "person"),
            ("har", "mobile phones", "person"),
        )
    },
    "landmine-curves": Words(
        "Landmine detection compared with the published curves",
        "Mean best AUC over fields 0 to 5 and their initialisations: the curves that the authors "
        f"published, and fedbo with the paper preset and with the default preset. {_ERRORS}",
        "Four panels, one for each method, of mean best AUC against iterations: published, paper "
        "preset and default preset.",
    ),
    "published": Words(
        "The published setting, repeated",
        "Mean best AUC from the published initial points, scored by SVC(probability=True) and "
        f"maximised by DIRECT as in the authors' code, together with their curves. {_ERRORS} "
        "Right: the mean difference between runs of the same field and initial points; shaded: "
        "two standard errors.",
        "Two panels, TS and FTS at M = 100, of mean best AUC against iterations, ours and "
        "published, and one panel of their difference.",
    ),
    "diagnostics": Words(
        "What the query of a message is worth",
        "The target's score at the point where a peer's message is largest, at a random point, and "
        "at the peer's own best point, which the peer would have to disclose. Bars: one standard "
        "error.",
        "Mean score with standard errors of three kinds of query: a random point, the point that "
        "a message proposes, and the peer's best point.",
    ),
}
