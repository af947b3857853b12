"""Measure the CPU time of a query against the number of agents N: FTS, TipsThenPool, RGPE, TAF.

This is the paper's Fig. 3d, and TipsThenPool besides. The runs are real runs in D = 2: the target
has 40 trials and makes 20 queries (t = 41 to 60), and is told each score before the next query. A
time is the mean over the queries of a run, and then the median of 9 runs. Each peer has 50 trials,
and M = 100. A query by the agent's own model refits it. FTS, with p_t = 1 - 1/sqrt(t), makes about
a third of its queries by a message, without a fit. Work that is done once when a message arrives is
not counted. FTS and TipsThenPool are measured with up to a million messages; the memory of these is
reported, and so are the numbers and bytes of a message of each kind.

    python benchmarks/agents.py --json out.json
"""

from __future__ import annotations

import time
from statistics import mean, median

import numpy as np
from threadpoolctl import threadpool_limits
from trials import command, progress, smooth_function, smooth_trials

import fedbo

T, QUERIES, RUNS, M, D = 50, 20, 9, 100, 2
NAMES = ("x0", "x1")
SPACE = {name: fedbo.Float(0.0, 1.0) for name in NAMES}
SIZES = {
    "fts": (28, 50, 100, 1_000, 10_000, 100_000, 1_000_000),
    "pts": (28, 50, 100, 1_000, 10_000, 100_000, 1_000_000),
    "rgpe": (7, 14, 28, 100, 300, 1_000),
    "taf": (7, 14, 28, 100, 300, 1_000),
}
POLICIES = {
    "fts": fedbo.FTS(),
    "pts": fedbo.TipsThenPool(),
    "rgpe": fedbo.RGPE(),
    "taf": fedbo.TAF(),
}
KINDS = {"fts": "weights", "pts": "weights", "rgpe": "belief", "taf": "belief"}


def params(x: np.ndarray) -> dict[str, float]:
    return dict(zip(NAMES, x.tolist(), strict=True))


def peer_messages(federation: fedbo.Federation, n: int) -> list[fedbo.Message]:
    """Create the messages of n agents with 50 trials each, on different functions."""
    messages = []
    for i in range(n):
        peer = fedbo.Agent(federation, name=f"peer-{i}", seed=i)
        for x, score in zip(*smooth_trials(D, T, seed=i % 50), strict=True):
            peer.tell(params(x), float(score))
        messages.append(peer.message())
        if i % 50 == 0:
            progress(f"{federation.kind}: messages of {i} of {n} peers")
    return messages


def fill(agent: fedbo.Agent, n: int, omegas: np.ndarray) -> None:
    """Fill the inbox with n messages that repeat the given ones."""
    for first in range(0, n, 50_000):
        rows = np.arange(first, min(first + 50_000, n))
        names = [f"peer-{i}" for i in rows]
        agent.inbox.extend(names, omegas[rows % len(omegas)], t_n=T, sequence=T)


def query_ms(agent: fedbo.Agent) -> float:
    """Measure the mean CPU milliseconds of a query, in a run from T - 10 trials on."""
    rng = np.random.default_rng(D)
    f = smooth_function(rng, D)
    for x in rng.random((T - QUERIES // 2, D)):
        agent.tell(params(x), float(f(x)))
    trial = agent.ask()  # the first query also pays for lazy imports and caches
    agent.tell(trial, float(f(np.array([*trial.params.values()]))))
    times = []
    for _ in range(QUERIES):
        start = time.process_time()
        trial = agent.ask()
        times.append(1e3 * (time.process_time() - start))
        agent.tell(trial, float(f(np.array([*trial.params.values()]))))
    return mean(times)


def measure(sizes: dict[str, tuple[int, ...]] = SIZES) -> dict[str, dict]:
    """Measure all policies, with inboxes of these sizes."""
    result: dict[str, dict] = {"cpu_ms": {}, "parameters": {}, "bytes": {}, "numbers": {}}
    for name, policy in POLICIES.items():
        federation = fedbo.Federation(SPACE, features=M, kind=KINDS[name])
        messages = peer_messages(federation, min(max(sizes[name]), 1_000))
        # the paper does not count the incumbent for RGPE, which ignores it
        result["parameters"][name] = messages[0].parameters - (name == "rgpe")
        result["numbers"][name] = messages[0].numbers
        result["bytes"][name] = messages[0].nbytes
        omegas = np.array([m.omega for m in messages]) if KINDS[name] == "weights" else None
        inboxes = {}
        for N in sizes[name]:
            progress(f"{name}: N = {N}")
            agent = fedbo.Agent(federation, policy, name="target", seed=0)
            if omegas is None:
                agent.receive(messages[:N])
            else:
                fill(agent, N, omegas)
                result["inbox_mb"] = agent.inbox.nbytes / 1e6
            inboxes[N] = agent.inbox
        times: dict[int, list[float]] = {N: [] for N in inboxes}
        for run in range(RUNS):  # sizes take turns, so that a busy machine slows all of them
            for N, inbox in inboxes.items():
                progress(f"{name}: run {run + 1} of {RUNS}, N = {N}")
                agent = fedbo.Agent(federation, policy, name="target", seed=run)
                agent.inbox = inbox
                times[N].append(query_ms(agent))
        result["cpu_ms"][name] = {str(N): median(values) for N, values in times.items()}
    return result


def show(result: dict[str, dict]) -> None:
    """Print the figures."""
    print(f"\nCPU ms of one query, t = {T}, M = {M}, D = {D}, mean of {QUERIES}, median of {RUNS}")
    for name, times in result["cpu_ms"].items():
        print(f"  {name:5}" + "  ".join(f"N={int(N):,}: {ms:.1f}" for N, ms in times.items()))
    fts = result["cpu_ms"]["fts"]
    most = max(fts, key=int)
    print(f"  FTS at N = {int(most):,} over N = 100: {fts[most] / fts['100']:.2f}")
    print(f"  pts over FTS at N = 50: {result['cpu_ms']['pts']['50'] / fts['50']:.2f}")
    for name in ("rgpe", "taf"):
        times = result["cpu_ms"][name]
        print(f"  {name} over FTS at N = 28: {times['28'] / fts['28']:.1f}")
    print(f"messages of the largest inbox: {result['inbox_mb']:.0f} MB")
    for name in result["parameters"]:
        print(
            f"  {name:5}{result['parameters'][name]:>7} parameters by the paper's count, "
            f"{result['numbers'][name]:>6} numbers in {result['bytes'][name]:>6} bytes on the wire"
        )


if __name__ == "__main__":
    with threadpool_limits(1):
        command(__doc__, measure, show)
