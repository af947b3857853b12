"""Compare three sites that tune together from the start with the same sites alone.

A data set of scikit-learn is split into three parts at random, one for each site. Each site tunes
gradient boosting on its own part: learning rate, leaves of a tree, L2 penalty and number of trees.
The score is the log loss on the two fifths of its part that the model was not trained on, to be
minimised. The sites take turns and publish as with --together of table.py. They use the default
policy, and alone expected improvement (EI). Both start from the same 3 points. Reported are the
mean lowest log loss after 1, 2, 3, 5, 10 and 20 trials, and the paired difference, with a 95 %
bootstrap interval over seeds, since the sites of one seed meet each other. Last comes the number of
runs that are better or worse together.

In the JSON, `at` has these figures by the number of trials, and `runs` the log loss of every trial:
seeds x sites x trials, of the sites together and alone.

    python benchmarks/shards.py --json out.json
"""

from __future__ import annotations

from functools import partial

import numpy as np

import fedbo
from fedbo_paper.harness.intervals import Floats, bootstrap

from . import runs, terminal
from .figures import Figures, counted
from .grounds import Boxed, Params
from .peers import DEFAULT
from .stored import array_digest

SETS = ("breast_cancer", "wine")
SITES = 3
UNSEEN = 0.4  # share of a site's rows that measure the log loss

SPACE = fedbo.Space(
    {
        "learning_rate": fedbo.Float(1e-3, 1, log=True),
        "max_leaf_nodes": fedbo.Int(2, 32, log=True),
        "l2_regularization": fedbo.Float(1e-6, 10, log=True),
        "max_iter": fedbo.Int(4, 64, log=True),
    },
    direction="minimize",
)


class Shards(Boxed):
    """The sites' parts of a data set.

    Args:
        name: One of `SETS`.
        seed: The seed of the split into parts.

    >>> 0 < Shards("wine", 0).score(2, SPACE.decode(np.full(4, 0.5))) < 1.1
    True
    """

    def __init__(self, name: str, seed: int) -> None:
        from sklearn import datasets
        from sklearn.model_selection import train_test_split

        X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        super().__init__(SPACE, SITES, name, array_digest([X, y]))
        parts = np.array_split(np.random.default_rng([9, seed]).permutation(len(y)), SITES)
        self.splits = [
            train_test_split(X[rows], y[rows], test_size=UNSEEN, stratify=y[rows], random_state=0)
            for rows in parts
        ]

    def score(self, task: int, params: Params) -> float:
        from sklearn.ensemble import HistGradientBoostingClassifier
        from sklearn.metrics import log_loss

        X, X_new, y, y_new = self.splits[task]
        # a leaf needs 20 rows by default, which would leave small parts with hardly any tree
        model = HistGradientBoostingClassifier(
            **params, min_samples_leaf=5, early_stopping=False, random_state=0
        )
        return float(log_loss(y_new, model.fit(X, y).predict_proba(X_new)))


def play(name: str, seed: int, trials: int) -> Floats:
    """Run all sites together and alone; return their log losses (2, sites, trials)."""
    from threadpoolctl import threadpool_limits

    ground, sites = Shards(name, seed), range(SITES)
    with threadpool_limits(1):  # so few rows are slower with more threads
        both = runs.play_together(ground, DEFAULT.__name__, sites, sites, seed, trials)
        alone = [runs.play(ground, fedbo.EI(), [], site, seed, trials) for site in sites]
    return np.array([np.reshape(both, (SITES, trials)), alone])


def summary(both: Floats, alone: Floats) -> Figures:
    """Compare the log losses (seeds, sites, trials) of sites together and alone."""
    result: Figures = {}
    for n in counted(both.shape[-1]):
        a, b = (losses[..., :n].min(axis=-1) for losses in (both, alone))
        result[str(n)] = {
            "together": float(a.mean()),
            "alone": float(b.mean()),
            "difference": bootstrap(np.positive, a - b),
            "better": int((a < b).sum()),
            "worse": int((a > b).sum()),
        }
    return result


def show(result: Figures, title: str) -> None:
    """Print the figures as a table."""
    rows = [
        [
            n,
            *(f"{row[key]:.4f}" for key in ("together", "alone")),
            terminal.estimate(row["difference"], 4),
            *(str(row[key]) for key in ("better", "worse")),
        ]
        for n, row in result.items()
    ]
    columns = ["trials", "together", "alone", "difference, 95 % interval", "better", "worse"]
    terminal.table(title, columns, rows)


def main() -> None:
    """Run the command."""
    parser = terminal.parser(__doc__)
    add = parser.add_argument
    add("--data", choices=SETS, default=SETS[0], help=f"default: {SETS[0]}")
    add("--seeds", type=terminal.positive, default=30, metavar="N", help="default: 30")
    text = "trials of each site, the 3 initial points included; default: 20"
    add("--trials", type=terminal.positive, default=20, metavar="N", help=text)
    options = parser.parse_args()
    calls = [partial(play, options.data, seed, options.trials) for seed in range(options.seeds)]
    losses = np.array(terminal.work("seeds", calls, options.jobs)).swapaxes(0, 1)
    result = summary(*losses)
    show(result, f"{options.data}, {SITES} sites: mean lowest log loss after this many trials")
    by_arm = dict(zip(("together", "alone"), losses.round(6).tolist(), strict=True))
    setting = {"data": options.data, "sites": SITES, "policy": DEFAULT.__name__}
    terminal.finish({**setting, "seeds": options.seeds, "at": result, "runs": by_arm}, options.json)
