"""The file an agent is saved to: written completely, checked when it is read. No pickle."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any, cast, get_args

import msgspec
import numpy as np

from fedbo import files
from fedbo.agent import savecheck
from fedbo.agent.account import Account
from fedbo.agent.settings import Settings
from fedbo.agent.trial import State, Trial
from fedbo.files import FileRefused
from fedbo.identity import KeyRefused
from fedbo.model.surrogate import SurrogateState
from fedbo.outside import shortened
from fedbo.policy import EI, FTS, RGPE, TAF, TS, Origin, Policy, Source, TipsThenPool
from fedbo.space import Categorical, Float, Int
from fedbo.space.axis import Value

#: The largest file that is read, in bytes.
LARGEST = 2**31
_TITLE = "fedbo agent 1"
_LONGEST = 300  # characters of an error, which may repeat what is in a file
#: How code fails that is given content which nobody would save.
_FAILURES = (
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)
_Known = TS | EI | FTS | TipsThenPool | RGPE | TAF


class SavedTrial(msgspec.Struct, kw_only=True):
    """A trial as files have it; every field is an attribute of `Trial`."""

    number: int
    params: dict[str, Value]
    source: Source
    peer: str | None = None
    t: int | None = None
    state: State = "pending"
    score: float | None = None
    agent: str = ""
    credit: dict[str, float] = {}
    trust: dict[str, float] = msgspec.field(default_factory=dict, name="weights")

    def to_trial(self) -> Trial:
        origin = Origin(self.source, credit=self.credit, trust=self.trust)
        fields = ("number", "params", "t", "state", "score", "agent")
        return Trial(origin=origin, **{name: getattr(self, name) for name in fields})


class Saved(msgspec.Struct, kw_only=True):
    """The content of the file; a policy or settings of None must be given again."""

    federation: str
    policy: _Known | None
    name: str
    settings: dict[str, Any] | None
    entropy: Any
    rng: Any
    trials: list[SavedTrial]
    points: list[list[float]]
    order: list[int]
    given: list[list[float]] | None
    surrogate: SurrogateState
    account: Account
    message: bytes | None
    inbox: Any
    within: dict[str, Float | Int | Categorical] = {}
    signer: str = ""
    held: dict[str, bytes] = {}  # keys of the signed messages in the inbox, by sender
    known: dict[str, str] = {}  # keys of peers, by name
    revoked: list[str] = []  # keys
    most_peers: int = 100_000


def write(path: str | os.PathLike[str], saved: Saved) -> None:
    """Write the file completely or not at all, and remove what killed writers left of it.

    Only its user can read it: it has all trials, and the source of the noise in messages.
    """
    files.write(path, files.seal(_TITLE, msgspec.msgpack.encode(saved)), 0o600)
    files.sweep(path)


def read(path: str | os.PathLike[str]) -> Saved:
    """Return what `write` wrote; refuse anything else."""
    name = os.fspath(path)
    try:
        data = files.read(path, LARGEST)
    except FileRefused as error:
        raise FileRefused(f"{name} holds no usable agent: {error}") from None
    payload = files.unseal(_TITLE, data, name)
    try:
        return msgspec.msgpack.decode(payload, type=Saved)
    except (ValueError, RecursionError, MemoryError) as error:
        why = shortened(str(error), _LONGEST)
        raise FileRefused(f"{name} holds an agent of another version of fedbo: {why}") from None


@contextlib.contextmanager
def refusing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Refuse the file if what is done with its content fails.

    Args:
        path: The file.
    """
    try:
        yield
    except (FileRefused, KeyRefused):
        raise
    except _FAILURES as error:
        why = shortened(str(error), _LONGEST) or type(error).__name__
        raise FileRefused(f"{os.fspath(path)} holds no usable agent: {why}") from None


def writable_policy(policy: Policy) -> _Known | None:
    """Return the policy if a file can hold it, else None."""
    return cast("_Known", policy) if type(policy) in get_args(_Known) else None


def readable_settings(saved: dict[str, Any] | None) -> Settings | None:
    """Return the settings of a file, or None if they must be given again."""
    if saved is None:
        return None
    savecheck.check_settings(saved)
    return msgspec.convert(saved, Settings)


def to_packable(value: Any) -> Any:
    """Return arrays and integers of any size in a form that MessagePack can hold.

    `fedbo.agent.savecheck.from_packable` undoes this.
    """
    if isinstance(value, dict):
        return {key: to_packable(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return {"array": value.tobytes(), "dtype": value.dtype.str, "shape": list(value.shape)}
    if isinstance(value, int) and value.bit_length() > 63:
        return {"int": hex(value)}
    return value
