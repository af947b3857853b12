"""A hostile file of an agent is refused with `FileRefused`, and nothing else happens."""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from fedbo import RGPE, Agent, Federation, FileRefused, files
from fedbo.message import Kind
from fedbo.testing.parties import PLANE

TITLE = "fedbo agent 1"
ESCAPE = "\x1b]0;x\x07\x1b[2Jevil"
KINDS: tuple[Kind, ...] = ("weights", "belief", "compact")
FEDERATIONS = {kind: Federation(PLANE, features=6, kind=kind) for kind in KINDS}


def told(federation: Federation, name: str, n: int) -> Agent:
    policy = RGPE() if federation.kind == "belief" else None
    agent = Agent(federation, policy, name=name, seed=len(name))
    for i in range(n):
        agent.tell(agent.ask(), float(i % 3))
    return agent


def saved(federation: Federation, path: Path) -> dict[str, Any]:
    """The content of the file of an agent with everything in it."""
    agent = told(federation, "a", 4)
    agent.receive(told(federation, "peer", 3).message())
    agent.tell(agent.ask(), 5.0)
    agent.ask()
    agent.message()
    agent.save(path)
    content: dict[str, Any] = msgspec.msgpack.decode(
        files.unseal(TITLE, path.read_bytes(), "the file")
    )
    return content


def write(path: Path, content: object) -> None:
    path.write_bytes(files.seal(TITLE, msgspec.msgpack.encode(content)))


def at(content: Any, place: tuple[Any, ...], value: object) -> None:
    for step in place[:-1]:
        content = content[step]
    content[place[-1]] = value


def array(dtype: str, *numbers: float) -> bytes:
    return np.array(numbers, dtype=dtype).tobytes()


CHANGES: dict[str, tuple[tuple[Any, ...], Any, str]] = {
    "federation": (("federation",), "x = [", "Invalid value"),
    "generator": (("rng",), "{}", "PCG64"),
    "entropy": (("entropy",), "abc", "entropy is not a whole number"),
    "an empty inbox": (("inbox",), {}, "senders"),
    "NaN": (("inbox", "omega"), array("<f4", *[np.nan] * 6), "omega in the inbox"),
    "chance": (("inbox", "chance"), array("<f8", -1.0), "chance in the inbox"),
    "a sender twice": (("inbox", "senders"), ["a", "a"], "twice"),
    "order": (("order",), [0, 0, 1, 2, 3], "order"),
    "initial": (("initial",), [{"a": 0.5, "b": 2.0}], "usable"),
    "score": (("trials", 0, "score"), float("nan"), "trial 0 is complete with score nan"),
    "params": (("trials", 0, "params"), {}, "trial 0: parameters do not fit"),
    "trust": (("trials", 4, "origin", "trust"), {ESCAPE: 0.5}, "the name is"),
    "signer": (("signer",), "x", "the key is 'x'"),
    "keys": (("held",), {"peer": b"x"}, "the key has 1 bytes"),
    "name": (("name",), ESCAPE, "usable"),
    "initial points": (("settings", "n_initial"), 10**15, "n_initial is more than 10,000"),
    "starts": (("settings", "surrogate", "fit", "starts"), 10**9, "starts is more than 1,000"),
    "scales": (("surrogate", "hyper", "length_scales"), [0.1], "not of 2 dimensions"),
    "count": (("surrogate", "built"), -1, "counts"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_no_agent_saves_is_refused(what: str, tmp_path: Path) -> None:
    place, value, words = CHANGES[what]
    content = saved(FEDERATIONS["weights"], path := tmp_path / "agent")
    at(content, place, value)
    write(path, content)
    began = time.process_time()
    with pytest.raises(FileRefused, match=words) as caught:
        Agent.load(path)
    assert time.process_time() - began < 2.0
    assert str(path) in str(caught.value) and len(str(caught.value)) < 600 + len(str(path))


@pytest.mark.parametrize(
    "data",
    [
        files.seal(TITLE, b"\x85\xa3"),
        files.seal(TITLE, b""),
        files.seal(TITLE, b"\x91" * 10**6),
        files.seal(TITLE, b"\x80" + b"x"),
        files.seal(TITLE, b"\x80")[:-1],
        b"",
    ],
)
def test_bytes_that_are_no_agent_are_refused_and_kept(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "agent").write_bytes(data)
    with pytest.raises(FileRefused, match=str(tmp_path / "agent")):
        Agent.load(tmp_path / "agent")
    assert (tmp_path / "agent").read_bytes() == data


def test_what_is_no_file_or_too_large_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "large").open("wb") as file:
        file.truncate(2**40)
    for name, why in (("pipe", "not a regular file"), ("large", "expected at most")):
        with pytest.raises(FileRefused, match=f"{name} holds no usable agent: it .*{why}"):
            Agent.load(tmp_path / name)


JUNK: list[Any] = [
    None, True, -1, 0, 1.5, 2**63, float("nan"), float("inf"), -1e308, "", ESCAPE, b"", b"\xff" * 9,
    [], [[]], [None], [1e308] * 2, {},
    {"a": {"b": {}}},
]  # fmt: skip


def places(content: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    steps = content.items() if isinstance(content, dict) else enumerate(content)
    for step, below in steps:
        yield (*above, step)
        if isinstance(below, dict | list):
            yield from places(below, (*above, step))


def uses(agent: Agent) -> list[Callable[[], object]]:
    return [agent.ask, agent.message, lambda: str(agent.explain(1)), lambda: repr(agent)]


@pytest.mark.parametrize("kind", FEDERATIONS)
def test_whatever_is_changed_the_file_is_refused_or_its_agent_works(
    kind: str, tmp_path: Path
) -> None:
    content = saved(FEDERATIONS[kind], path := tmp_path / "agent")
    whole = msgspec.msgpack.encode(content)
    rng = np.random.default_rng(0)
    refused = 0
    for place in places(content):
        for i in rng.permutation(len(JUNK))[:4]:
            changed = msgspec.msgpack.decode(whole)
            at(changed, place, JUNK[i])
            write(path, changed)
            try:
                agent = Agent.load(path)
            except FileRefused:
                refused += 1
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)
                for use in uses(agent):
                    with contextlib.suppress(ValueError):
                        assert "\x1b" not in str(use()), (place, JUNK[i])
    assert refused > 100
