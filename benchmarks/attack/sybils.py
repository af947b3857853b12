"""Measure what a party with many names (Sybils) can do to an agent that has honest peers.

The target runs TipsThenPool, the default policy, on a task of the SVM table. Its honest peers are
the agents of all other tasks, with 50 trials each. An attacker adds messages under 10, 100 or
1,000 names:

fixed       each says that the target's worst configuration is best, and recommends it; they are
            sent once, before the first query
adaptive    the attacker knows all trials of the target, and its whole table. Before each query
            every name sends a new message, which agrees with all scores so far and recommends a
            bad configuration that was not tried yet

With a list of members, all messages are signed, and the keyring refuses what no member has signed.
So each target is run once more, with 1,000 adaptive Sybils, in a federation that lists the honest
peers: it must make the same trials as with honest peers only. Every other Sybil takes the name of
an honest peer. This part needs the extra [identity].

The regret is (best − best so far) / (best − worst). It is compared, after the same number
of trials, with that of an agent alone (Thompson sampling) and of TipsThenPool with honest peers
only.
Intervals are 95 % bootstraps over targets, with all their seeds; differences are paired.

    FEDBO_DATA=folder python benchmarks/attack/sybils.py --json out.json
"""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import fedbo
from fedbo.identity import KeyPair, Keyring, is_installed
from fedbo.model.linear import Posterior, Regression
from fedbo.model.summary import quantise, saturated, summarise
from fedbo.model.surrogate import Standardised
from fedbo_paper.contests import contest, hostile, measures, options, screen
from fedbo_paper.contests.contest import Scores
from fedbo_paper.contests.grounds import Listed, read_table
from fedbo_paper.data import find
from fedbo_paper.harness import intervals
from fedbo_paper.harness.intervals import Effect, Floats

Attack = Callable[[Sequence[fedbo.Trial]], list[fedbo.Message]]  # before each query

ALONE, HONEST = "alone", "honest peers"
NUMBERS = (10, 100, 1000)  # of Sybils
AT = (1, 2, 3, 5, 10, 20)  # trials
PRAISE = 1.0  # how far a bad configuration is praised above the best score, in standard deviations
BAD = 0.5  # share of the configurations that are bad


def sybil_messages(
    agreed: fedbo.Federation, X: Floats, z: Floats, n: int, sequence: int, seed: int
) -> list[fedbo.Message]:
    """Make one message for each of n names, of these points and scores, with noise of its own."""
    rng = np.random.default_rng([seed, sequence])
    header: Any = {"fingerprint": agreed.fingerprint, "epoch": agreed.epoch, "t_n": len(X)}
    belief, counts = belief_through(agreed, X, z), saturated(agreed.counts(X))
    G, B, tip = agreed.known_of(counts), agreed.basis.vectors, agreed.lattice.pack(X[z.argmax()])
    means = np.array([summarise(belief, G, B, rng)[0] for _ in range(n)])
    levels, scales = quantise(means, rng)
    return [
        fedbo.Message.of_compact(
            levels[i], float(scales[i]), counts, tip, sender=f"s-{i}", sequence=sequence, **header
        )
        for i in range(n)
    ]


def belief_through(agreed: fedbo.Federation, X: Floats, z: Floats) -> Posterior:
    """Return the belief of an agent with these points and standard scores."""
    regression = Regression(agreed.phi, agreed.noise_variance)
    regression.add(X)
    return regression.posterior(z)


def fixed(agreed: fedbo.Federation, ground: Listed, target: int, n: int, seed: int) -> Attack:
    """Praise the target's worst configuration, once."""
    history = hostile.worst_praised(ground, target, seed)[0]
    rows = [ground.row(params) for params, _ in history]
    z = Standardised(np.array([score for _, score in history])).z

    def attack(trials: Sequence[fedbo.Trial]) -> list[fedbo.Message]:
        return [] if trials else sybil_messages(agreed, ground.X[rows], z, n, 1, seed)

    return attack


def adaptive(agreed: fedbo.Federation, ground: Listed, target: int, n: int, seed: int) -> Attack:
    """Agree with every score of the target, and praise a bad configuration."""
    bad = np.argsort(ground.Y[target])[: int(BAD * len(ground.X))]

    def attack(trials: Sequence[fedbo.Trial]) -> list[fedbo.Message]:
        rows = [ground.row(trial.params) for trial in trials]
        z = Standardised(np.array([trial.score for trial in trials])).z
        left = np.setdiff1d(bad, rows)
        # The most plausible of the bad ones: where the scores so far say least
        _, var = belief_through(agreed, ground.X[rows], z).predict(ground.X[left])
        praised = int(left[var.argmax()])
        z = np.append(z, z.max(initial=0.0) + PRAISE)
        return sybil_messages(agreed, ground.X[[*rows, praised]], z, n, len(rows) + 1, seed)

    return attack


ATTACKS = {"fixed": fixed, "adaptive": adaptive}


def run(
    ground: Listed,
    agreed: fedbo.Federation,
    policy: fedbo.Policy,
    honest: Sequence[fedbo.Message],
    attack: Attack | None,
    target: int,
    seed: int,
    trials: int,
) -> list[float]:
    """Run the target, which hears of the attacker before each query; return its scores."""
    agent = fedbo.Agent(
        agreed,
        policy,
        name="target",
        seed=1000 * target + seed,
        initial=ground.initial(target, seed),
    )
    agent.receive(honest)
    for _ in range(trials):
        if attack is not None:
            agent.receive(attack(agent.trials))
        trial = agent.ask()
        agent.tell(trial, ground.score(target, trial.params))
    return [float(trial.score or 0.0) for trial in agent.trials]


def play(
    ground: Listed,
    known: Sequence[contest.History],
    target: int,
    seeds: Sequence[int],
    trials: int,
) -> Scores:
    """Run one target alone, with honest peers, and with each number of Sybils."""
    scores: Scores = {}
    agreed = contest.federation(ground, contest.DEFAULT())
    honest = contest.messages(agreed, target, known, seeds[0])
    for seed in seeds:
        here = (target, seed, trials)
        scores[ALONE, target, seed] = run(ground, agreed, fedbo.TS(), [], None, *here)
        scores[HONEST, target, seed] = run(ground, agreed, contest.DEFAULT(), honest, None, *here)
        for name, make in ATTACKS.items():
            for n in NUMBERS:
                attack = make(agreed, ground, target, n, seed)
                found = run(ground, agreed, contest.DEFAULT(), honest, attack, *here)
                scores[f"{n:,} {name}", target, seed] = found
    return scores


# A list of members


def play_members(
    ground: Listed, known: Sequence[contest.History], target: int, seed: int, trials: int
) -> tuple[bool, Counter[str]]:
    """Return whether the list keeps the Sybils out, and how many messages were refused."""
    keys = {f"task-{n}": KeyPair.generate() for n in range(ground.tasks)}
    kind = contest.DEFAULT().kinds[0]
    members = {name: str(pair) for name, pair in keys.items()}
    agreed = fedbo.Federation(ground.space, kind=kind, members=members)
    unsigned = contest.messages(agreed, target, known, seed)
    honest = [keys[message.sender].sign(message) for message in unsigned]
    send = adaptive(agreed, ground, target, NUMBERS[-1], seed)
    attacker, keyring, counts = KeyPair.generate(), Keyring(), Counter[str]()

    def attack(trials: Sequence[fedbo.Trial]) -> list[fedbo.Message]:
        sent = []
        for i, message in enumerate(send(trials)):
            name = honest[i % len(honest)].sender if i % 2 else message.sender
            sent.append(attacker.sign(msgspec.structs.replace(message, sender=name)))
        accepted, refused = keyring.admit(agreed, [*honest, *sent])
        counts.update(accepted=len(accepted), refused=len(refused))
        return accepted

    here = (target, seed, trials)
    scores = [
        run(ground, agreed, contest.DEFAULT(), honest, each, *here) for each in (None, attack)
    ]
    return scores[0] == scores[1], counts


def figures(regret: Floats, alone: Floats, honest: Floats) -> dict[str, dict[str, Effect]]:
    """Compute mean regrets, and paired differences from alone and from honest peers only."""
    found: dict[str, dict[str, Effect]] = {"regret": {}, "beyond alone": {}, "beyond honest": {}}
    for n in (n for n in AT if n <= regret.shape[-1]):
        here, solo, only = (each[:, :, n - 1] for each in (regret, alone, honest))
        found["regret"][str(n)] = intervals.bootstrap(np.positive, here)
        found["beyond alone"][str(n)] = intervals.bootstrap(np.subtract, here, solo)
        found["beyond honest"][str(n)] = intervals.bootstrap(np.subtract, here, only)
    return found


def show(found: dict[str, dict[str, dict[str, Effect]]]) -> None:
    """Print regrets and differences."""
    at = [*found[ALONE]["regret"]]
    titles = {
        "regret": "mean regret",
        "beyond alone": "mean regret minus that of an agent alone",
    }
    for key, title in titles.items():
        screen.table(
            f"{title} (95 % intervals)",
            ["peers", *(f"at {n}" for n in at)],
            [
                [name, *(screen.estimate(each[key][n], 3) for n in at)]
                for name, each in found.items()
            ],
        )


def with_members(
    ground: Listed, known: Sequence[contest.History], tasks: Sequence[int], given: Namespace
) -> dict[str, int] | None:
    """Run each target with a list of members, and print whether Sybils made a difference."""
    if not is_installed():
        screen.say("Left out the list of members: install fedbo[identity].")
        return None
    calls = [partial(play_members, ground, known, target, 0, given.trials) for target in tasks]
    found = screen.work("members", calls, given.jobs)
    same, counts = sum(is_same for is_same, _ in found), sum((c for _, c in found), Counter())
    text = f"with a list of members: {same} of {len(tasks)} targets make the same trials as without"
    screen.out.print(f"\n{text} Sybils; {counts['refused']:,} messages were refused")
    return {"same": same, "targets": len(tasks), **counts}


def main() -> None:
    """Run the command."""
    parser = options.parser(__doc__)
    add = parser.add_argument
    text = f"the SVM table; default: {hostile.TABLE} in the data folder"
    add("--table", type=Path, metavar="PATH", help=text)
    text = "tasks that are targets; default: odd, as the attack was tried out on even ones"
    add("--targets", choices=("even", "odd", "all"), default="odd", help=text)
    add("--seeds", type=options.positive, default=6, metavar="N", help="runs on a target")
    text = "trials of each run, the initial points included; default: 20"
    add("--trials", type=options.positive, default=20, metavar="N", help=text)
    add("--json", type=Path, metavar="OUT", help="also write the figures to this file")
    options.add_jobs(parser)
    given = parser.parse_args()
    ground = read_table(given.table or find("tst_svm", [hostile.TABLE]))
    tasks = contest.targets(ground, given.targets)
    known = contest.histories(ground, given.jobs, given.seeds)
    calls = [
        partial(play, ground, known[h], target, group, given.trials)
        for h, group in enumerate(contest.groups(given.seeds))
        for target in tasks
    ]
    scores = screen.work("targets", calls, given.jobs)
    names = dict.fromkeys(name for name, _, _ in scores[0])
    regrets = measures.regrets(ground, tasks, contest.curves(scores, names, tasks))
    found = {
        name: figures(regret, regrets[ALONE], regrets[HONEST]) for name, regret in regrets.items()
    }
    show(found)
    screen.finish(
        {
            "seeds": given.seeds,
            "targets": len(tasks),
            "peers": found,
            "members": with_members(ground, known[0], tasks, given),
        },
        given.json,
    )


if __name__ == "__main__":
    screen.run(main)
