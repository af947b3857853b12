"""CPU time of one query against the number of agents N: FTS, RGPE and TAF (the paper's Fig. 3d).

Every query refits the target's hyper-parameters; the target has t = 41 to 60 trials in D = 2, its
peers 50 each, M = 100. What is done once when a message arrives is not counted. FTS goes on to a
million messages, whose memory is reported; so are the parameters and the bytes of each message.

    python benchmarks/agents.py --json out.json
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from statistics import median

import numpy as np
from threadpoolctl import threadpool_limits
from trials import smooth_trials

import fedbo

T, QUERIES, M, D = 50, 20, 100, 2
NAMES = ("x0", "x1")
SPACE = {name: fedbo.Float(0.0, 1.0) for name in NAMES}
SIZES = {
    "fts": (28, 100, 1_000, 10_000, 100_000, 1_000_000),
    "rgpe": (7, 14, 28, 100, 300, 1_000),
    "taf": (7, 14, 28, 100, 300, 1_000),
}
POLICIES = {"fts": fedbo.FTS(), "rgpe": fedbo.RGPE(), "taf": fedbo.TAF()}
KINDS = {"fts": "weights", "rgpe": "belief", "taf": "belief+incumbent"}


def params(x: np.ndarray) -> dict[str, float]:
    return dict(zip(NAMES, x.tolist(), strict=True))


def peer_messages(federation: fedbo.Federation, n: int) -> list[fedbo.Message]:
    """Messages of n agents with 50 trials each, of functions of their own."""
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
    """Put n weight messages into the inbox, made of the real ones over and over."""
    for first in range(0, n, 50_000):
        rows = np.arange(first, min(first + 50_000, n))
        names = [f"peer-{i}" for i in rows]
        agent.inbox.extend(names, omegas[rows % len(omegas)], t_n=T, sequence=T)


def query_ms(agent: fedbo.Agent, X: np.ndarray, y: np.ndarray) -> float:
    """Median CPU milliseconds of a query; the agent has been told the first T - 10 trials."""
    times, trial = [], agent.ask()
    for x, score in zip(X, y, strict=True):
        agent.tell(trial, None)
        agent.tell(params(x), float(score))
        start = time.process_time()
        trial = agent.ask()
        times.append(1e3 * (time.process_time() - start))
    return median(times)


def measure(sizes: dict[str, tuple[int, ...]]) -> dict[str, dict]:
    result: dict[str, dict] = {"cpu_ms": {}, "parameters": {}, "bytes": {}, "numbers": {}}
    X, y = smooth_trials(D, T + QUERIES // 2)
    first = T - QUERIES // 2
    for name, policy in POLICIES.items():
        federation = fedbo.Federation(SPACE, features=M, kind=KINDS[name])
        messages = peer_messages(federation, min(max(sizes[name]), 1_000))
        result["parameters"][name] = messages[0].parameters
        result["numbers"][name] = messages[0].numbers
        result["bytes"][name] = messages[0].nbytes
        result["cpu_ms"][name] = {}
        for N in sizes[name]:
            progress(f"{name}: N = {N}")
            agent = fedbo.Agent(federation, policy, name="target", seed=0)
            if name == "fts":
                fill(agent, N, np.array([message.omega for message in messages]))
                result["inbox_mb"] = agent.inbox.nbytes / 1e6
            else:
                agent.receive(messages[:N])
            for x, score in zip(X[:first], y[:first], strict=True):
                agent.tell(params(x), float(score))
            result["cpu_ms"][name][str(N)] = query_ms(agent, X[first:], y[first:])
    progress("")
    return result


def progress(text: str) -> None:
    print(f"\r{text:<50}", end="", file=sys.stderr, flush=True)


def show(result: dict[str, dict]) -> None:
    print(f"\nCPU ms of one query, t = {T}, M = {M}, D = {D}, median of {QUERIES}")
    for name, times in result["cpu_ms"].items():
        print(f"  {name:5}" + "  ".join(f"N={int(N):,}: {ms:.1f}" for N, ms in times.items()))
    fts = result["cpu_ms"]["fts"]
    print(f"  FTS at N = 1,000,000 over N = 100: {fts[max(fts, key=int)] / fts['100']:.2f}")
    for name in ("rgpe", "taf"):
        times = result["cpu_ms"][name]
        print(f"  {name} over FTS at N = 28: {times['28'] / fts['28']:.1f}")
    print(f"messages of the largest inbox: {result['inbox_mb']:.0f} MB")
    for name in result["parameters"]:
        print(
            f"  {name:5}{result['parameters'][name]:>7} parameters as the paper counts, "
            f"{result['numbers'][name]:>6} numbers in {result['bytes'][name]:>6} bytes on the wire"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    with threadpool_limits(1):
        result = measure(SIZES)
    show(result)
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
