"""Mutate messages at random, and check that damage has one outcome: `MessageRefused`.

Messages of all kinds, and signed withdrawals, are changed in one to three ways:

flip        bits are flipped
insert      random bytes are inserted
delete      bytes are removed
cut         the message ends early, or goes on with random bytes
splice      the first part of one message is followed by the last part of another
header      a byte that begins a MessagePack object becomes another such byte
widen       numbers, texts and arrays are encoded in more bytes than they need
field       a field is repeated, removed, moved, or replaced by an odd value
nest        thousands of arrays inside each other

Each is read and checked as an agent or an exchange does it. What must hold:

- No exception is raised but `MessageRefused`.
- The memory of the process stays flat.
- Unsigned: an accepted message, encoded again, gives the same bytes.
- Signed, in a federation that lists its members: an accepted message equals one that a member
  signed in every byte. This half needs the extra [identity].

The command ends with status 1 if any of it does not hold.

    python benchmarks/attack/mutate.py --messages 1000000 --json out.json
"""

from __future__ import annotations

import random
import resource
import struct
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import msgspec
import numpy as np

import fedbo
from fedbo.identity import KeyPair, Keyring, is_installed
from fedbo.message import Kind, Withdrawal, read
from fedbo_paper.contests import options, screen

SPACE = {"x": fedbo.Float(0.0, 1.0), "y": fedbo.Float(0.0, 1.0)}
KINDS: tuple[Kind, ...] = get_args(Kind)
NAMES = ("site-a", "site-b/2", "Köln")
FEATURES = 16  # few, so that most changes meet something else than a weight
WARM = 10_000  # messages before memory is measured
SHOWN = 2  # examples of each fault
FLAT = 16.0  # MB that the memory may grow
HEADERS = bytes([*range(0x80, 0xE0), *range(0xF8, 0x100)])
ODD: tuple[Any, ...] = (
    None, True, -1, 2**31, 2**32, 2**63, -(2**63), 1.5, float("nan"), float("inf"), "", "x" * 70,
    "\x00", "\u202e", "é" * 40, b"", b"\x00" * 3, b"\x7f" * 64, b"\xff" * 400, [], [[]], {}, {1: 1}
)  # fmt: skip
SCORED = 12  # trials behind a message

Mutation = Callable[[random.Random, Sequence[bytes]], bytes]
Accept = Callable[[bytes], bytes]  # returns the accepted message encoded again, or refuses


# Mutations


def flip(rng: random.Random, sources: Sequence[bytes]) -> bytes:
    data = bytearray(rng.choice(sources))
    for _ in range(rng.choice((1, 1, 2, 8))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def insert(rng: random.Random, sources: Sequence[bytes]) -> bytes:
    data = rng.choice(sources)
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.randbytes(rng.choice((1, 1, 2, 4, 16))) + data[at:]


def delete(rng: random.Random, sources: Sequence[bytes]) -> bytes:
    data = rng.choice(sources)
    at = rng.randrange(len(data))
    return data[:at] + data[at + rng.choice((1, 1, 2, 4, 16)) :]


def cut(rng: random.Random, sources: Sequence[bytes]) -> bytes:
    data = rng.choice(sources)
    rest = rng.randbytes(rng.choice((0, 0, 1, 40)))
    return data[: rng.randrange(len(data) + 1)] + rest


def splice(rng: random.Random, sources: Sequence[bytes]) -> bytes:
    first, last = rng.choice(sources), rng.choice(sources)
    at = rng.randrange(min(len(first), len(last)))
    by = rng.choice((0, 0, rng.randrange(-8, 9)))
    return first[:at] + last[max(at + by, 0) :]


def header(rng: random.Random, sources: Sequence[bytes]) -> bytes:
    data = bytearray(rng.choice(sources))
    places = [i for i, byte in enumerate(data[:64]) if byte >= 0x80] or [0]
    data[rng.choice(places)] = rng.choice(HEADERS)
    return bytes(data)


def widen(rng: random.Random, sources: Sequence[bytes]) -> bytes:
    return _wide(rng, msgspec.msgpack.decode(rng.choice(sources)))


def _wide(rng: random.Random, value: Any) -> bytes:
    """Encode a value; some lengths and numbers take more bytes than needed."""
    if rng.random() < 0.5 and not isinstance(value, list):
        return msgspec.msgpack.encode(value)
    if isinstance(value, list):
        inside = b"".join(_wide(rng, each) for each in value)
        short = msgspec.msgpack.encode([None] * len(value))[:1]
        return rng.choice((short, short, struct.pack(">BI", 0xDD, len(value)))) + inside
    if isinstance(value, bytes):
        return struct.pack(">BI", 0xC6, len(value)) + value
    if isinstance(value, str):
        return struct.pack(">BI", 0xDB, len(value.encode())) + value.encode()
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**64:
        return struct.pack(">BQ", 0xCF, value)
    return msgspec.msgpack.encode(value)


def field(rng: random.Random, sources: Sequence[bytes]) -> bytes:
    """Change one field; of an envelope, sometimes one of the message inside."""
    fields = msgspec.msgpack.decode(rng.choice(sources))
    if fields[0] == 2 and rng.random() < 0.5:
        fields[2] = _with_other_field(rng, msgspec.msgpack.decode(fields[2]))
        return msgspec.msgpack.encode(fields)
    return _with_other_field(rng, fields)


def _with_other_field(rng: random.Random, fields: list[Any]) -> bytes:
    inner = [each for each in fields if isinstance(each, list)]
    where = rng.choice([fields, *inner])
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


def nest(rng: random.Random, sources: Sequence[bytes]) -> bytes:
    data = rng.choice(sources)
    deep = rng.choice((b"\x91", b"\x81\x01")) * rng.choice((10, 1000, 5000))
    at = rng.randrange(min(len(data), 64))
    return data[:at] + deep + data[at:]


MUTATIONS: dict[str, tuple[Mutation, int]] = {  # with their share of all messages
    "flip": (flip, 20),
    "insert": (insert, 12),
    "delete": (delete, 12),
    "cut": (cut, 10),
    "splice": (splice, 12),
    "header": (header, 12),
    "widen": (widen, 10),
    "field": (field, 11),
    "nest": (nest, 1),
}


def mutated(rng: random.Random, name: str, sources: Sequence[bytes]) -> bytes:
    """Change a message by one mutation, and sometimes by one or two more that treat it as bytes."""
    data = MUTATIONS[name][0](rng, sources)
    for more in rng.choice(((), (), (), (flip,), (insert, delete))):
        data = more(rng, [data or b"\x00"])
    return data


# What is attacked


def messages(federation: fedbo.Federation) -> list[fedbo.Message]:
    """Create the messages of a few agents."""
    found = []
    for i, name in enumerate(NAMES):
        agent = fedbo.Agent(federation, fedbo.TS(), name=name, seed=i)
        for x, y in np.random.default_rng(i).random((SCORED, 2)).tolist():
            agent.tell({"x": x, "y": y}, x - y * y)
        found.append(agent.message())
    return found


def unsigned(kind: Kind) -> tuple[list[bytes], Accept]:
    """Return unsigned messages of a kind, and what a federation without keys accepts."""
    federation = fedbo.Federation(SPACE, features=FEATURES, kind=kind)

    def accept(data: bytes) -> bytes:
        message = fedbo.Message.decode(data)
        federation.check(message)
        return message.encode()

    return [message.encode() for message in messages(federation)], accept


def signed(kind: Kind) -> tuple[list[bytes], Accept]:
    """Return signed messages and withdrawals, and what a federation with members accepts."""
    keys = {name.partition("/")[0]: KeyPair.generate() for name in NAMES}
    members = {name: str(pair) for name, pair in keys.items()}
    federation = fedbo.Federation(SPACE, features=FEATURES, kind=kind, members=members)
    keyring = Keyring()
    sources = []
    for message in messages(federation):
        pair = keys[message.sender.partition("/")[0]]
        named = {name: getattr(message, name) for name in ("fingerprint", "epoch", "sender")}
        withdrawal = Withdrawal(**named, sequence=message.sequence + 1)
        sources += [pair.sign(message).encode(), pair.sign(withdrawal).encode()]

    def accept(data: bytes) -> bytes:
        found = read(data)
        if isinstance(found, fedbo.Message):
            federation.check(found)
        keyring.check(federation, [found])
        return found.encode()

    return sources, accept


def attack(half: str, n: int, seed: int) -> dict[str, Any]:
    """Mutate n messages, and count what happens to them."""
    rng = random.Random(seed)
    make = {"unsigned": unsigned, "signed": signed}[half]
    targets = [make(kind) for kind in KINDS]
    for sources, accept in targets:
        if any(accept(data) != data for data in sources):
            raise SystemExit("a message that was not changed is refused, or encodes differently")
    counts: dict[str, Counter[str]] = {name: Counter() for name in MUTATIONS}
    faults: list[str] = []
    weights = [share for _, share in MUTATIONS.values()]
    everything = [data for sources, _ in targets for data in sources]
    before = 0.0
    for i in range(n):
        if i == min(WARM, n // 2):
            before = peak()
        sources, accept = rng.choice(targets)
        (name,) = rng.choices([*MUTATIONS], weights)
        data = mutated(rng, name, everything if name == "splice" else sources)
        outcome, fault = judge(half, data, sources, accept)
        counts[name][outcome] += 1
        if fault and counts[name][outcome] <= SHOWN:
            faults.append(f"{name}: {fault}: {data[:100].hex()}")
        if (i + 1) * 10 // n > i * 10 // n:
            screen.say(f"{half}: {i + 1:,} of {n:,}")
    return {"counts": counts, "faults": faults, "memory before": before, "memory after": peak()}


def judge(
    half: str, data: bytes, sources: Sequence[bytes], accept: Accept
) -> tuple[str, str | None]:
    """Return what happened to a message, and what is wrong with that."""
    try:
        again = accept(data)
    except fedbo.MessageRefused:
        return "refused", None
    except Exception as error:
        return "error", f"{type(error).__name__}: {error}"
    if data in sources:
        return "unchanged", None
    if half == "signed":
        return "forged", "accepted, although no member signed these bytes"
    return ("other", None) if again == data else ("ambiguous", "accepted, but encodes differently")


def peak() -> float:
    """Return the largest memory that this process has had, in MB."""
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def show(half: str, found: dict[str, Any]) -> bool:
    """Print the counts; return whether everything holds."""
    outcomes = ("refused", "unchanged", "other", "forged", "ambiguous", "error")
    counts: dict[str, Counter[str]] = found["counts"]
    counts = {**counts, "all": sum(counts.values(), Counter())}
    screen.table(
        f"{half}: what happened to mutated messages",
        ["mutation", "messages", *outcomes],
        [
            [name, f"{each.total():,}", *(f"{each[outcome]:,}" for outcome in outcomes)]
            for name, each in counts.items()
        ],
    )
    growth = found["memory after"] - found["memory before"]
    screen.out.print(f"memory at most {found['memory after']:.0f} MB, grown by {growth:.1f} MB")
    for fault in found["faults"]:
        screen.out.print(fault, highlight=False, soft_wrap=True, markup=False)
    return not found["faults"] and growth < FLAT


def main() -> None:
    """Run the command."""
    parser = options.parser(__doc__)
    text = "mutated messages in each half; default: 1,000,000"
    parser.add_argument("--messages", type=options.positive, default=10**6, metavar="N", help=text)
    text = "only one half; default: both"
    parser.add_argument("--half", choices=("unsigned", "signed"), help=text)
    parser.add_argument("--seed", type=int, default=0, help="of the mutations; default: 0")
    parser.add_argument("--json", type=Path, metavar="OUT", help="also write the counts there")
    given = parser.parse_args()
    halves = [given.half] if given.half else ["unsigned", "signed"]
    if "signed" in halves and not is_installed():
        screen.say("Left out signed messages: install fedbo[identity].")
        halves.remove("signed")
    found = {half: attack(half, given.messages, given.seed) for half in halves}
    holds = all([show(half, each) for half, each in found.items()])
    screen.out.print("everything holds" if holds else "NOT EVERYTHING HOLDS")
    screen.finish(found, given.json)
    if not holds:
        raise SystemExit(1)


if __name__ == "__main__":
    screen.run(main)
