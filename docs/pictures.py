"""Draw the pictures of "How it works" with fedbo itself: ``python docs/pictures.py``.

The problem is invented, and has one parameter or two, so that it can be drawn; all else is what
agents do. The pictures have no background, and their colours suit a light page and a dark one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

import fedbo
from fedbo.federation.shared import Shared
from fedbo.insight.colours import COLOURS
from fedbo.model.gp import GP, Hyper
from fedbo.model.linear import Regression
from fedbo.policy.peers import Peers
from fedbo.policy.pool import Pool
from fedbo.privacy import Plan, Simulated, release

Array = NDArray[np.float64]
FOLDER = Path(__file__).parent / "how" / "pictures"
GREY, (BLUE, RED, GREEN, PINK, ORANGE, _) = "#7d7d7d", COLOURS
STYLE = {
    "font.size": 13,
    "axes.titlesize": 13,
    "svg.hashsalt": "fedbo",
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "savefig.transparent": True,
    "figure.constrained_layout.use": True,
    **{f"{name}.color": GREY for name in ("text", "xtick", "ytick")},
    **{f"axes.{name}color": GREY for name in ("edge", "label", "title")},
}
LINE = np.linspace(0.0, 1.0, 201)
STEPS = np.linspace(0.0, 1.0, 101)  # along each side of the square
TRIED = np.array([0.06, 0.2, 0.37, 0.62, 0.78])  # trials of the agent with one parameter


# The problems


def score(x: Array, shift: float = 0.0) -> Array:
    """Return a score of one parameter; sites differ by a shift."""
    return np.sin(7.0 * (x - shift)) * (0.6 + x) + 0.3 * np.cos(19.0 * x)


def surface(x: Array, y: Array, shift: tuple[float, float] = (0.0, 0.0)) -> Array:
    """Return a score of two parameters; sites differ by where their best point is."""
    hill = np.exp(-(((x - 0.66 - shift[0]) / 0.2) ** 2) - ((y - 0.38 - shift[1]) / 0.24) ** 2)
    return np.asarray(hill + 0.45 * np.exp(-(((x - 0.2) / 0.16) ** 2) - ((y - 0.8) / 0.18) ** 2))


LINE_FEDERATION = fedbo.Federation({"x": fedbo.Float(0, 1)}, features=100, seed=3)
PLANE = fedbo.Federation({"x": fedbo.Float(0, 1), "y": fedbo.Float(0, 1)}, features=100, seed=3)
SHARED = Shared.of(PLANE)
SHIFTS = ((0.0, 0.06), (0.14, -0.16), (-0.16, 0.1))  # of three peers


def on_line(name: str, points: Array, shift: float) -> fedbo.Agent:
    """Return an agent that has tried these points of one parameter."""
    agent = fedbo.Agent(LINE_FEDERATION, name=name, seed=1)
    for x in points:
        agent.tell({"x": float(x)}, float(score(x, shift)))
    return agent


def on_plane(name: str, shift: tuple[float, float], trials: int, seed: int) -> fedbo.Agent:
    """Return an agent that has tuned two parameters by itself."""
    agent = fedbo.Agent(PLANE, name=name, seed=seed)
    run(agent, shift, trials)
    return agent


def run(agent: fedbo.Agent, shift: tuple[float, float], trials: int) -> Array:
    """Run some trials; return the best score after each."""
    best = []
    for _ in range(trials):
        trial = agent.ask()
        x, y = trial.params["x"], trial.params["y"]
        agent.tell(trial, float(surface(np.float64(x), np.float64(y), shift)))
        assert agent.best is not None and agent.best.score is not None
        best.append(agent.best.score)
    return np.array(best)


def standard() -> tuple[Array, float, float]:
    """Return the scores of the trials on the line in standard units, their mean and deviation."""
    y = score(TRIED)
    return (y - y.mean()) / y.std(), float(y.mean()), float(y.std())


# The pictures


def posterior() -> Figure:
    """What an agent believes after five trials."""
    figure, axes = panels(1)
    y, centre, unit = standard()
    gp = GP(Hyper(length_scales=(0.13,), noise_variance=1e-3), TRIED[:, None])
    gp.set_scores(y)
    mean, variance = gp.predict(LINE[:, None])
    band(axes[0], centre + unit * mean, unit * np.sqrt(variance), BLUE, "what it believes")
    axes[0].plot(LINE, score(LINE), "--", color=GREY, label="the truth, which nobody knows")
    axes[0].plot(TRIED, score(TRIED), "o", color=RED, label="trials")
    label(axes[0], "a parameter", "score")
    return figure


def features() -> Figure:
    """A few of the shared functions, and the belief as their sum."""
    figure, axes = panels(2)
    phi, (y, centre, unit) = Shared.of(LINE_FEDERATION).phi, standard()
    for m, colour in zip((0, 2, 5, 6), (GREEN, PINK, ORANGE, BLUE), strict=True):
        axes[0].plot(LINE, np.cos(phi.s[m] * LINE + phi.b[m]), color=colour)
    axes[0].set_title("four of 100 features")
    regression = Regression(phi, 0.01)
    regression.add(TRIED[:, None])
    belief = regression.posterior(y)
    axes[1].plot(LINE, centre + unit * belief.predict(LINE[:, None])[0], color=BLUE)
    axes[1].plot(TRIED, score(TRIED), "o", color=RED, label="trials")
    axes[1].set_title("their weighted sum")
    label(axes[0], "a parameter", "")
    label(axes[1], "a parameter", "score")
    return figure


def message() -> Figure:
    """What an agent knows, and what is left of it in a message."""
    figure, axes = panels(2)
    agent = on_line("site-a", TRIED, 0.0)
    sent, (y, *_) = agent.message(), standard()
    regression = Regression(Shared.of(LINE_FEDERATION).phi, LINE_FEDERATION.noise_variance)
    regression.add(TRIED[:, None])
    mean = regression.posterior(y).predict(LINE[:, None])[0]
    axes[0].plot(LINE, mean - mean.mean(), color=BLUE, label="its belief")
    axes[0].plot(TRIED, y, "o", color=RED, label="its trials")
    axes[0].set_title("what the sender knows")
    held = fedbo.Agent(LINE_FEDERATION, name="b", seed=0)
    held.receive(sent)
    peers = Peers(LINE_FEDERATION, held.inbox, np.empty((0, 1)), np.empty(0))
    axes[1].plot(LINE, peers.values(LINE[:, None])[:, 0], color=BLUE, label="rounded mean")
    axes[1].axvline(float(peers.tips[0, 0]), color=GREEN, label="tip")
    cells = Shared.of(LINE_FEDERATION).nearest_cells(LINE[:, None])
    counts = Shared.of(LINE_FEDERATION).counts(TRIED[:, None])
    low = axes[1].get_ylim()[0] - 0.6
    for cell in np.unique(cells):
        inside = LINE[cells == cell]
        shade = 0.1 + 0.35 * min(int(counts[cell]), 2)
        width = float(np.ptp(inside))
        axes[1].add_patch(Rectangle((inside.min(), low), width, 0.35, color=ORANGE, alpha=shade))
    axes[1].plot([], [], color=ORANGE, lw=6, label="cells with trials")
    axes[1].set_title(f"what a peer gets: {sent.nbytes} bytes")
    for each in axes:
        label(each, "a parameter", "", place="upper right")
        each.set_yticks([])
    return figure


def tips() -> Figure:
    """The first trials of a newcomer, alone and with three messages."""
    figure, axes = panels(2, height=3.8)
    messages = [
        on_plane(f"site-{n}", shift, 15, seed=n).message() for n, shift in enumerate(SHIFTS)
    ]
    alone, together = (fedbo.Agent(PLANE, name="newcomer", seed=7) for _ in range(2))
    together.receive(messages)
    for each, agent, title in zip(
        axes, (alone, together), ("alone", "with three tips"), strict=True
    ):
        contours(each)
        run(agent, (0.0, 0.0), 4)
        places = np.array([[trial.params["x"], trial.params["y"]] for trial in agent.trials])
        if agent is together:
            named = np.array([SHARED.tip(sent) for sent in messages])
            each.plot(*named.T, "s", color=GREEN, ms=9, label="tips of peers")
        each.plot(*places.T.astype(float), "o", color=RED, label="first trials")
        for number, (x, y) in enumerate(places.astype(float), 1):
            each.annotate(str(number), (x, y), (6, -12), textcoords="offset points", color=RED)
        each.set_title(title)
    figure.legend(*axes[1].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def pool() -> Figure:
    """What a newcomer expects after two trials, by itself and with its peers."""
    figure, axes = panels(2, height=3.3)
    places = np.array([0.1, 0.85])
    newcomer = on_line("newcomer", places, 0.02)
    for n, shift in enumerate((0.0, 0.03, 0.05)):
        trials = np.linspace(0.02 + 0.02 * n, 0.98, 9)
        newcomer.receive(on_line(f"site-{n}", trials, shift).message())
    target = newcomer._target(None, np.random.default_rng(0))
    target.belief  # noqa: B018 - fits the agent's own model
    peers = Peers(LINE_FEDERATION, newcomer.inbox, target.X, target.y)
    beliefs = (target.belief.predict(LINE[:, None]), Pool(target, peers).predict(LINE[:, None]))
    truth = score(LINE, 0.02)
    at_trials = score(places, 0.02)
    scale = (target.y[1] - target.y[0]) / (at_trials[1] - at_trials[0])
    for each, (mean, variance), title in zip(
        axes, beliefs, ("by itself", "with its peers"), strict=True
    ):
        band(each, mean, np.sqrt(variance), BLUE, "what it expects")
        each.plot(
            LINE, target.y[0] + scale * (truth - at_trials[0]), "--", color=GREY, label="truth"
        )
        each.plot(places, target.y, "o", color=RED, label="its trials")
        each.set_title(title)
        each.set_yticks([])
        each.set(xlabel="a parameter", ylabel="score")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def reveals() -> Figure:
    """A site's trials, and what somebody sees who reads its message."""
    figure, axes = panels(2, height=3.8)
    agent = on_plane("site-a", (0.0, 0.0), 15, seed=6)
    places = np.array([[trial.params["x"], trial.params["y"]] for trial in agent.trials], float)
    contours(axes[0])
    axes[0].plot(*places.T, "o", color=RED, label="its trials")
    axes[0].set_title("what the site has")
    reader = fedbo.Agent(PLANE, name="reader", seed=0)
    reader.receive(agent.message())
    peers = Peers(PLANE, reader.inbox, np.empty((0, 2)), np.empty(0))
    grid = plane()
    guess = peers.values(grid)[:, 0].reshape(len(STEPS), len(STEPS))
    axes[1].contourf(STEPS, STEPS, guess, 8, cmap="Blues", alpha=0.75)
    cells, counts = SHARED.nearest_cells(grid), SHARED.counts(places)
    for cell in np.flatnonzero(counts):
        inside = (cells == cell).reshape(guess.shape).astype(float)
        width = 1 + min(int(counts[cell]), 3)
        axes[1].contour(STEPS, STEPS, inside, [0.5], colors=ORANGE, linewidths=width)
    axes[1].plot([], [], color=ORANGE, lw=2, label="cells with trials")
    axes[1].plot(*peers.tips.T, "s", color=GREEN, ms=9, label="tip")
    axes[1].set_title("what a reader sees")
    handles = [each.get_legend_handles_labels() for each in axes]
    (trials, said), (rest, others) = handles
    figure.legend(trials + rest, said + others, loc="outside lower center", ncols=3)
    return figure


def votes() -> Figure:
    """The votes of 40 members, and what a private release says of them."""
    figure, axes = panels(1)
    federation = fedbo.Federation(
        {"x": fedbo.Float(0, 1), "y": fedbo.Float(0, 1)},
        privacy=Plan(epsilon=2.0, delta=1e-3),
    )
    rng, contributions = np.random.default_rng(5), []
    for n in range(40):
        agent = fedbo.Agent(federation, name=f"site-{n}", seed=n)
        shift = rng.normal(0.0, 0.06, 2)
        for x, y in rng.random((40, 2)):
            agent.tell({"x": x, "y": y}, float(surface(x, y, (shift[0], shift[1]))))
        contributions.append(agent.message())
    true = np.bincount([sent.body.cell for sent in contributions], minlength=64)
    made = release(federation, contributions, source=Simulated(1))
    noisy = np.array(made.votes) / 64
    axes[0].bar(np.arange(64), noisy, color=BLUE, label="published, with noise")
    axes[0].plot(np.flatnonzero(true), true[true > 0], "o", color=RED, label="votes, never shown")
    axes[0].axhline(0.0, color=GREY, lw=1)
    label(axes[0], "the 64 public cells", "votes")
    return figure


def start() -> Figure:
    """Best score against trials, alone and with one message: the mean of ten pairs of sites."""
    figure, axes = panels(1, height=2.9)
    rng, curves = np.random.default_rng(0), ([], [])
    for n in range(10):
        shift, other = (tuple(rng.normal(0.0, 0.05, 2)) for _ in range(2))
        sent = on_plane("first", other, 15, seed=n).message()
        for heard, curve in zip((False, True), curves, strict=True):
            agent = fedbo.Agent(PLANE, name="newcomer", seed=50 + n)
            if heard:
                agent.receive(sent)
            curve.append(run(agent, shift, 15))
    for curve, colour, name in zip(
        curves, (GREY, BLUE), ("alone", "with one message"), strict=True
    ):
        axes[0].plot(np.arange(1, 16), np.mean(curve, axis=0), "o-", color=colour, label=name)
    label(axes[0], "trials", "best score so far")
    return figure


# Their parts


def panels(count: int, height: float = 3.0) -> tuple[Figure, list[Axes]]:
    figure, axes = plt.subplots(1, count, figsize=(6.6, height), squeeze=False)
    for each in axes[0, :count] if count > 1 else ():
        each.set_xticks([0.0, 0.5, 1.0])
    return figure, list(axes[0])


def band(axes: Axes, mean: Array, deviation: Array, colour: str, name: str) -> None:
    axes.fill_between(
        LINE, mean - 2 * deviation, mean + 2 * deviation, color=colour, alpha=0.2, lw=0
    )
    axes.plot(LINE, mean, color=colour, label=name)


def label(axes: Axes, x: str, y: str, place: str = "best") -> None:
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc=place, fontsize=10, handlelength=1.2)


def plane() -> Array:
    x, y = np.meshgrid(STEPS, STEPS)
    return np.stack([x.ravel(), y.ravel()], axis=1)


def contours(axes: Axes) -> None:
    x, y = np.meshgrid(STEPS, STEPS)
    axes.contourf(x, y, surface(x, y), 8, cmap="Blues", alpha=0.75)


PICTURES: tuple[Callable[[], Figure], ...] = (
    posterior, features, message, tips, pool, reveals, votes, start,
)  # fmt: skip

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    with plt.rc_context(STYLE):
        for picture in PICTURES:
            figure = picture()
            figure.savefig(FOLDER / f"{picture.__name__}.svg", metadata={"Date": None})
            plt.close(figure)
