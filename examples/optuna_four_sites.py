"""Four Optuna studies in four processes, alone and together: python examples/optuna_four_sites.py

Each site has the digits that some people wrote, and its own storage. All sites tune the same model,
first alone, then with messages through a folder, which they join one after the other. With fifteen
trials and one seed, this is an example and no evidence.
"""

import multiprocessing
import os
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import optuna
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

import fedbo
from fedbo.exchange import FolderExchange, Ledger
from fedbo.optuna import FederatedSampler

SITES, TRIALS, EVERY = 4, 15, 5
FEDERATION = fedbo.Federation(
    {
        "components": fedbo.Int(1, 60),
        "C": fedbo.Float(1e-4, 1e4, log=True),
        "gamma": fedbo.Float(1e-6, 1e2, log=True),
    }
)


def site(number: int, folder: Path) -> None:
    """Run one site: one study alone and one together, on its own images and storage."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    images, digits = load_digits(return_X_y=True)
    mine = np.array_split(np.arange(len(digits)), SITES)[number]  # in the order of their writers

    def accuracy(trial: optuna.Trial) -> float:
        components = trial.suggest_int("components", 1, 60)
        C = trial.suggest_float("C", 1e-4, 1e4, log=True)
        gamma = trial.suggest_float("gamma", 1e-6, 1e2, log=True)
        model = make_pipeline(PCA(components, random_state=0), SVC(C=C, gamma=gamma))
        return float(cross_val_score(model, images[mine] / 16, digits[mine], cv=3).mean())

    exchange = FolderExchange(folder / "exchange")
    for way in ("alone", "together"):
        sampler = FederatedSampler(
            FEDERATION,
            None if way == "alone" else exchange,
            every=EVERY,
            name=f"site-{number}",
            seed=number,  # the same both ways; leave it out if messages should be private
            ledger=Ledger(folder / "ledger.jsonl"),  # instead of the user's log
        )
        study = optuna.create_study(
            study_name=way, storage=storage(folder, number), sampler=sampler, direction="maximize"
        )
        if way == "together":
            wait_for(number, exchange)
        study.optimize(accuracy, n_trials=TRIALS)


def wait_for(sites: int, exchange: FolderExchange) -> None:
    """Wait until so many sites have published their first message."""
    deadline = time.monotonic() + 120
    while len(exchange.fetch(FEDERATION)) < sites:
        if time.monotonic() > deadline:
            raise SystemExit(f"There were fewer than {sites} messages after two minutes.")
        time.sleep(0.2)


def storage(folder: Path, number: int) -> str:
    return f"sqlite:///{folder / f'site-{number}.db'}"


def show(together: list[optuna.Study], alone: list[optuna.Study]) -> None:
    """Print the best scores after 5, 10 and 15 trials."""
    stops = (5, 10, 15)
    print("Best cross-validated accuracy after 5, 10 and 15 trials")
    print(f"{'':6}{'together':>16}{'alone':>27}")
    print(f"{'':6}" + "   ".join(2 * ["".join(f"{stop:8}" for stop in stops)]))
    rows = []
    for studies in zip(together, alone, strict=True):
        values = [[trial.value for trial in study.trials] for study in studies]
        rows.append([[max(some[:stop]) for stop in stops] for some in values])
    for name, row in [
        *((f"site-{i}", row) for i, row in enumerate(rows)),
        ("mean", np.mean(rows, 0)),
    ]:
        print(f"{name:6}" + "   ".join("".join(f"{best:8.4f}" for best in some) for some in row))


def main() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"  # four processes share this machine
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        sites = [context.Process(target=site, args=(i, folder)) for i in range(SITES)]
        for process in sites:
            process.start()
        for process in sites:
            process.join()
        if any(process.exitcode for process in sites):
            raise SystemExit("A site has failed: see its error above.")
        together, alone = (
            [optuna.load_study(study_name=way, storage=storage(folder, i)) for i in range(SITES)]
            for way in ("together", "alone")
        )
        show(together, alone)
        trials = [trial for study in together for trial in study.trials]
        sources = Counter(trial.system_attrs["fedbo:query"]["source"] for trial in trials)
        print("Queries together came from:", dict(sources.most_common()))
        sent = Ledger(folder / "ledger.jsonl").read()
        print(f"The sites sent {len(sent)} messages of {sent[0].nbytes} bytes each.")
    print("This shows how to do it, and is no evidence: other seeds give other results, and so may")
    print("another run, because messages arrive at other times. docs/transfer.md has measurements.")


if __name__ == "__main__":
    main()
