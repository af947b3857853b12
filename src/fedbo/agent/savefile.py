"""The file an agent is saved to: one, written whole, checked when it is read. No pickle."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast, get_args

import msgspec
import numpy as np

from fedbo import files
from fedbo.agent.account import Account
from fedbo.agent.settings import Settings
from fedbo.agent.trial import Trial
from fedbo.files import FileRefused
from fedbo.model.surrogate import SurrogateState
from fedbo.policy import FTS, PTS, RGPE, TAF, TS, Policy
from fedbo.space import Categorical, Float, Int

__all__ = ["FileRefused", "Saved", "from_packable", "read", "to_packable", "writable", "write"]

_TITLE = "fedbo agent 1"
_Known = TS | FTS | PTS | RGPE | TAF


class Saved(msgspec.Struct, kw_only=True):
    """Everything that makes an agent what it is."""

    federation: str
    policy: _Known | None
    name: str
    settings: Settings
    entropy: Any
    rng: Any
    trials: list[Trial]
    points: list[list[float]]
    order: list[int]
    given: list[list[float]] | None
    surrogate: SurrogateState
    account: Account
    message: bytes | None
    inbox: Any
    within: dict[str, Float | Int | Categorical] = {}


def write(path: str | os.PathLike[str], saved: Saved) -> None:
    """Write the file whole, or leave what was there."""
    files.write(path, files.seal(_TITLE, msgspec.msgpack.encode(saved)))


def read(path: str | os.PathLike[str]) -> Saved:
    """What `write` wrote; anything else is refused, and left as it is."""
    name = os.fspath(path)
    payload = files.unseal(_TITLE, Path(path).read_bytes(), name)
    try:
        return msgspec.msgpack.decode(payload, type=Saved)
    except msgspec.ValidationError as error:
        raise FileRefused(f"{name} holds an agent of another version of fedbo: {error}") from None


def writable(policy: Policy) -> _Known | None:
    """The policy if a file can hold it, else None."""
    try:
        msgspec.msgpack.encode(policy)
    except TypeError:
        return None
    return cast("_Known", policy) if type(policy) in get_args(_Known) else None


def to_packable(value: Any) -> Any:
    """Arrays and whole numbers of any size, in what MessagePack can hold."""
    if isinstance(value, dict):
        return {key: to_packable(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return {"array": value.tobytes(), "dtype": value.dtype.str, "shape": list(value.shape)}
    if isinstance(value, list | tuple):
        return [to_packable(item) for item in value]
    if isinstance(value, int) and value.bit_length() > 63:
        return {"int": hex(value)}
    return value


def from_packable(value: Any) -> Any:
    """The inverse of `to_packable`."""
    if isinstance(value, list):
        return [from_packable(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "array" in value:
        flat = np.frombuffer(value["array"], dtype=np.dtype(value["dtype"]))
        return flat.reshape(value["shape"])
    if "int" in value:
        return int(value["int"], 16)
    return {key: from_packable(item) for key, item in value.items()}
