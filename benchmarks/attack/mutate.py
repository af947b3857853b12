"""Mutate whatever travels at random, and check that damage has one outcome: `MessageRefused`.

Messages of all kinds, contributions, releases and withdrawals are changed in one to three ways:

flip        bits or bytes are changed
edit        bytes are inserted, removed or replaced, or the message ends early
splice      the first part of one is followed by the last part of another
widen       numbers, texts and arrays are encoded in more bytes than they need
field       a field is repeated, removed, moved, or replaced by an odd value
nest        thousands of arrays inside each other
swell       a field is replaced by one of 2 MB

Half of the inputs are opened as if they came from another agent of the same program, which needs no
signature; half are opened in a federation that lists its members. What is accepted goes into an
inbox. What must hold:

- No exception is raised but `MessageRefused`, and no warning.
- The memory of the process grows by less than 64 MiB.
- Without signatures: what is accepted, encoded again, gives the same bytes.
- With signatures: what is accepted equals something that a member signed in every byte.

The command ends with status 1 if any of it does not hold.

    python benchmarks/attack/mutate.py --inputs 300000
"""

from __future__ import annotations

import argparse
import random
import resource
import struct
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, cast, get_args

import msgspec
import numpy as np
import rich

import fedbo
from fedbo.message import Heard, Kind, Release, Withdrawal
from fedbo.privacy import Plan, release
from fedbo.trust import KeyPair, Keyring, border
from fedbo_paper.harness.screen import table

SPACE = {"x": fedbo.Float(0.0, 1.0), "y": fedbo.Float(0.0, 1.0)}
NAMES = ("site-a", "site-b/2", "Köln")
FEATURES = 16  # few, so that most changes meet something else than a weight
SCORED = 12  # trials behind a message
LARGE = 2**21  # bytes of a field that is too large
FLAT = 64.0  # MB that the memory may grow
PRIVATE = ("contribution", "release")
SHOWN = 10  # faults
ODD: tuple[Any, ...] = (
    None, True, -1, 2**31, 2**32, 2**63, -(2**63), 1.5, float("nan"), float("inf"), "", "x" * 70,
    "\x00", "\u202e", "é" * 40, b"", b"\x00" * 3, b"\x7f" * 64, b"\xff" * 400, [], [[]], {}, {1: 1}
)  # fmt: skip
OUTCOMES = ("refused", "unchanged", "other", "forged", "ambiguous", "error")

Sources = Sequence[bytes]
Accept = Callable[[bytes], bytes]  # returns the accepted message encoded again, or refuses


# Mutations


def flip(rng: random.Random, sources: Sources) -> bytes:
    data = bytearray(rng.choice(sources))
    for _ in range(rng.choice((1, 1, 2, 8))):
        data[rng.randrange(len(data))] ^= rng.choice((1 << rng.randrange(8), rng.randrange(256)))
    return bytes(data)


def edit(rng: random.Random, sources: Sources) -> bytes:
    data = rng.choice(sources)
    at = rng.randrange(len(data) + 1)
    new = rng.randbytes(rng.choice((0, 0, 1, 1, 2, 4, 16, 40)))
    removed = rng.choice((0, 0, 1, 1, 2, 4, 16, len(data)))
    return data[:at] + new + data[at + removed :]


def splice(rng: random.Random, sources: Sources) -> bytes:
    first, last = rng.choice(sources), rng.choice(sources)
    at = rng.randrange(min(len(first), len(last)))
    by = rng.choice((0, 0, rng.randrange(-8, 9)))
    return first[:at] + last[max(at + by, 0) :]


def widen(rng: random.Random, sources: Sources) -> bytes:
    return _wide(rng, msgspec.msgpack.decode(rng.choice(sources)))


def _wide(rng: random.Random, value: Any) -> bytes:
    """Encode a value; some lengths and numbers take more bytes than needed."""
    if isinstance(value, list):
        short = msgspec.msgpack.encode([None] * len(value))[:1]
        start = rng.choice((short, short, struct.pack(">BI", 0xDD, len(value))))
        return start + b"".join(_wide(rng, item) for item in value)
    if rng.random() < 0.5:
        return msgspec.msgpack.encode(value)
    if isinstance(value, bytes):
        return struct.pack(">BI", 0xC6, len(value)) + value
    if isinstance(value, str):
        return struct.pack(">BI", 0xDB, len(value.encode())) + value.encode()
    if type(value) is int and 0 <= value < 2**64:
        return struct.pack(">BQ", 0xCF, value)
    return msgspec.msgpack.encode(value)


def field(rng: random.Random, sources: Sources) -> bytes:
    fields = msgspec.msgpack.decode(rng.choice(sources))
    where = rng.choice([fields, *(value for value in fields if isinstance(value, list))])
    i, change = rng.randrange(len(where)), rng.randrange(4)
    if change == 0:
        where.insert(rng.randrange(len(where) + 1), where[i])
    elif change == 1:
        del where[i]
    elif change == 2:
        where.insert(rng.randrange(len(where)), where.pop(i))
    else:
        where[i] = rng.choice(ODD)
    return msgspec.msgpack.encode(fields)


def nest(rng: random.Random, sources: Sources) -> bytes:
    data = rng.choice(sources)
    deep = rng.choice((b"\x91", b"\x81\x01")) * rng.choice((10, 1000, 5000))
    at = rng.randrange(min(len(data), 64))
    return data[:at] + deep + data[at:]


def swell(rng: random.Random, sources: Sources) -> bytes:
    fields = msgspec.msgpack.decode(rng.choice(sources))
    where = rng.choice([fields, *(value for value in fields if isinstance(value, list))])
    large = rng.choice((b"\xff" * LARGE, "x" * LARGE, [1] * LARGE, [2**40] * (LARGE // 9)))
    where[rng.randrange(len(where))] = large
    numbers = [i for i, value in enumerate(where) if type(value) is int]
    if numbers and rng.random() < 0.5:  # such as the number of coordinates
        where[rng.choice(numbers)] = 2 * LARGE
    return msgspec.msgpack.encode(fields)


#: Their share of all inputs.
MUTATIONS = {flip: 20, edit: 35, splice: 12, widen: 10, field: 11, nest: 1, swell: 1}


# What is attacked


def target(kind: str, is_signed: bool) -> tuple[list[bytes], Accept]:
    """Return what travels in a federation, and what accepts it there."""
    keys = {name.partition("/")[0]: KeyPair.generate() for name in (*NAMES, "hub")}
    members = {name: str(pair) for name, pair in keys.items()} if is_signed else None
    plan = Plan(epsilon=2.0, delta=1e-3) if kind in PRIVATE else None
    compact: Kind = "compact" if kind in PRIVATE else cast(Kind, kind)
    federation = fedbo.Federation(
        SPACE, features=FEATURES, kind=compact, members=members, privacy=plan
    )
    contents: list[Heard | Withdrawal] = []
    for i, name in enumerate(NAMES):
        agent = fedbo.Agent(federation, fedbo.TS(), name=name, seed=i)
        for x, y in np.random.default_rng(i).random((SCORED, 2)).tolist():
            agent.tell({"x": x, "y": y}, x - y * y)
        contents.append(agent.message())
        header = {"fingerprint": federation.fingerprint, "sender": name}
        contents += [Withdrawal(**header, sequence=SCORED + 1)] * is_signed
    if kind == "release":
        contents = [release(federation, [c for c in contents if isinstance(c, fedbo.Message)])]
    signed = [keys[c.sender.partition("/")[0]].sign(c) if is_signed else c for c in contents]

    def accept(data: bytes) -> bytes:
        # a new keyring, so that nothing is refused because something else was heard before
        trusted = border.open(federation, Keyring() if is_signed else None, data)
        content = trusted.content
        if isinstance(content, Release) or (plan is None and isinstance(content, fedbo.Message)):
            fedbo.Agent(federation, fedbo.TS(), name="target").receive(trusted)
        return content.encode()

    return [content.encode() for content in signed], accept


def attack(is_signed: bool, n: int, seed: int) -> dict[str, Any]:
    """Mutate n inputs, and count what happens to them."""
    rng = random.Random(seed)
    targets = [target(kind, is_signed) for kind in (*get_args(Kind), *PRIVATE)]
    for sources, accept in targets:
        if any(accept(data) != data for data in sources):
            raise SystemExit("what was not changed is refused, or encodes differently")
    everything = [data for sources, _ in targets for data in sources]
    counts: dict[str, Counter[str]] = {mutate.__name__: Counter() for mutate in MUTATIONS}
    faults: list[str] = []
    before = peak()
    for _ in range(n):
        sources, accept = rng.choice(targets)
        (mutate,) = rng.choices([*MUTATIONS], [*MUTATIONS.values()])
        data = mutate(rng, everything if mutate is splice else sources)
        for more in rng.choice(((), (), (), (flip,), (edit, edit))):
            data = more(rng, [data or b"\x00"])
        outcome = judge(data, sources, accept, is_signed)
        counts[mutate.__name__][outcome] += 1
        if outcome in ("forged", "ambiguous", "error") and len(faults) < SHOWN:
            faults.append(f"{mutate.__name__}, {outcome}: {data[:100].hex()}")
    return {"counts": counts, "faults": faults, "memory": peak(), "growth": peak() - before}


def judge(data: bytes, sources: Sources, accept: Accept, is_signed: bool) -> str:
    """Return what happened to an input."""
    try:
        again = accept(data)
    except fedbo.MessageRefused:
        return "refused"
    except Exception:
        return "error"
    if data in sources:
        return "unchanged"
    if is_signed:
        return "forged"
    return "other" if again == data else "ambiguous"


def peak() -> float:
    """Return the largest memory that this process has had, in MB."""
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    text = "of them half with signatures; default: 300,000"
    parser.add_argument("--inputs", type=int, default=300_000, metavar="N", help=text)
    parser.add_argument("--seed", type=int, default=0, help="of the mutations; default: 0")
    options = parser.parse_args()
    holds = True
    warnings.simplefilter("error")
    for half, is_signed in (("without signatures", False), ("with signatures", True)):
        result = attack(is_signed, options.inputs // 2, options.seed)
        shown = table(half, "inputs", *OUTCOMES)
        for name, count in result["counts"].items():
            shown.add_row(name, *(f"{n:,}" for n in (count.total(), *(count[o] for o in OUTCOMES))))
        rich.print(shown)
        print(f"memory at most {result['memory']:.0f} MB, grown by {result['growth']:.1f} MB")
        print(*result["faults"], sep="\n")
        holds = holds and not result["faults"] and result["growth"] < FLAT
    print("everything holds" if holds else "NOT EVERYTHING HOLDS")
    if not holds:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
