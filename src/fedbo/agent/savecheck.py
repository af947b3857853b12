"""Checks of what is in the file of an agent: a file may come from anyone, or be damaged cleverly.

Names that pass can be shown, and numbers that pass can be computed with.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedbo.federation import Federation
from fedbo.identity import verify
from fedbo.message import Message, MessageRefused
from fedbo.message.inbox import CHANCE_LIMIT
from fedbo.message.signed import COUNTER_LIMITS, KEY_BYTES, check_origin, parse_key
from fedbo.model.kernel import kernel_named
from fedbo.model.surrogate import SurrogateState
from fedbo.space import Space

if TYPE_CHECKING:
    from fedbo.agent.savefile import Saved, SavedTrial

MOST_INITIAL = 10_000  # initial points
MOST_STARTS = 1_000  # of a fit
MOST_SAMPLES = 100_000  # of a policy
_MOST_BITS = 4096  # of a seed
_MOST_WORDS = 128  # of a seed that is a list
_MOST_KNOWN, _MOST_REVOKED = 100_000, 1_000  # keys
_RANK_STEP = 8  # the rank of beliefs is held in multiples of this
_SLACK = 1e-9  # rounding on the cube
_LEAST = 1e-100  # of a hyper-parameter
_DTYPE = re.compile(r"[<>|=][fiub][1248]")

#: The columns of an inbox: their types, and how many numbers a row has: 1 or M.
_COLUMNS = {
    "omega": ("f4", True),
    "t_n": ("i4", False),
    "sequence": ("i8", False),
    "chance": ("f8", False),
    "used": ("b1", False),
}
_BELIEFS = {"nu": ("f4", True), "incumbents": ("f8", False)}


def check(saved: Saved, federation: Federation) -> None:
    """Raise a ValueError, which says why, if an agent of this federation cannot have saved this.

    Args:
        saved: The content of a file.
        federation: The federation in it.
    """
    seed(from_packable(saved.entropy))
    for key in filter(None, [saved.signer, *saved.known.values(), *saved.revoked]):
        parse_key(key)
    _require(len(saved.known) <= _MOST_KNOWN, f"there are {len(saved.known):,} known keys")
    _require(len(saved.revoked) <= _MOST_REVOKED, f"there are {len(saved.revoked):,} revoked keys")
    for name, held in saved.held.items():
        _require(len(held) == KEY_BYTES, f"the key of peer {name!r} has {len(held)} bytes")
    _check_trials(saved, federation.space)
    if saved.given is not None:
        _check_points("given", saved.given, federation.space)
    _check_model(saved.surrogate, federation.space.dimensions)
    samples = getattr(saved.policy, "samples", 0)
    _require(samples <= MOST_SAMPLES, f"the policy has {samples:,} samples")


def inbox_state(packed: Any, federation: Federation) -> dict[str, Any]:
    """Return what `fedbo.message.inbox.Inbox.restore` is given; a ValueError if it is not sound.

    Args:
        packed: The inbox in a file.
        federation: The federation in it.
    """
    M = federation.coordinates
    state: dict[str, Any] = from_packable(packed) if isinstance(packed, dict) else {}
    _require(isinstance(state, dict) and state.get("M") == M, f"the inbox is not of M = {M}")
    sizes: Any = state.get("name_sizes")
    names: Any = state.get("names")
    _require(_is_array(sizes, "u1") and isinstance(names, bytes), "the inbox has no names")
    _require(int(sizes.sum()) == len(names), "the names in the inbox do not have their sizes")
    n, D = len(sizes), federation.space.dimensions
    _require(state.get("D") == D, f"the inbox is not of D = {D}")
    _check_column("tips", state.get("tips"), "f8", (n, D))
    is_belief = federation.kind != "weights"
    for name, (dtype, is_wide) in (_COLUMNS | (_BELIEFS if is_belief else {})).items():
        _check_column(name, state.get(name), dtype, (n, M) if is_wide else (n,))
    if is_belief:
        R = state.get("R")
        rank = R.shape[1] if isinstance(R, np.ndarray) and R.ndim == 3 else 0
        _check_column("R", R, "f4", (n, rank, M))
        _require(rank < M + _RANK_STEP, f"the beliefs in the inbox have rank {rank}")
        seed(state.get("entropy"))
    for name in _split(names, sizes.tolist()):
        check_origin(bytes(16), name)
    return state


def own_message(saved: Saved, federation: Federation, signer: str) -> Message | None:
    """Return the message that the agent handed out last; None if it has to be made anew.

    One that this agent would not hand out now is dropped.

    Args:
        saved: The content of a file.
        federation: The federation in it.
        signer: The key that the agent signs with, as text; empty if it does not sign.
    """
    if saved.message is None:
        return None
    message = Message.decode(saved.message)
    found = message.sender, message.signer, message.sequence
    if found != (saved.name, signer, len(saved.order)):
        return None
    try:
        federation.check(message)
        if message.key:
            verify(message)
    except MessageRefused:
        return None
    return message


def from_packable(value: Any) -> Any:
    """Return what `fedbo.agent.savefile.to_packable` was given.

    Raises:
        ValueError: If it was given nothing that an agent has.
    """
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return _array(value["array"], value.get("dtype"), value.get("shape"))
    if "int" in value:
        digits = value["int"]
        is_short = isinstance(digits, str) and len(digits) <= 2 + _MOST_BITS // 4
        _require(is_short, f"a whole number has more than {_MOST_BITS:,} bits")
        return int(digits, 16)
    return {key: from_packable(item) for key, item in value.items()}


def seed(entropy: object) -> None:
    """Raise a ValueError unless this is the entropy of random numbers."""
    words = entropy if isinstance(entropy, list) else [entropy]
    is_sound = len(words) <= _MOST_WORDS and all(
        type(word) is int and word >= 0 and word.bit_length() <= _MOST_BITS for word in words
    )
    _require(is_sound, f"entropy is not a whole number of at most {_MOST_BITS:,} bits")


def _require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise ValueError(otherwise)


def _check_trials(saved: Saved, space: Space) -> None:
    _check_points("points", saved.points, space)
    _require(
        len(saved.points) == len(saved.trials),
        f"there are {len(saved.trials):,} trials, but {len(saved.points):,} points",
    )
    complete = []
    for number, trial in enumerate(saved.trials):
        _require(trial.number == number, f"trial {number} has number {trial.number}")
        _check_trial(trial, saved.name, space)
        complete += [number] if trial.state == "complete" else []
    _require(sorted(saved.order) == complete, "order does not have each complete trial once")


def _check_trial(trial: SavedTrial, agent: str, space: Space) -> None:
    what = f"trial {trial.number}"
    _require(trial.agent in ("", agent), f"{what} is of another agent")
    is_scored = trial.score is not None and math.isfinite(trial.score)
    is_told = is_scored if trial.state == "complete" else trial.score is None
    _require(is_told, f"{what} is {trial.state} with score {trial.score}")
    _require(trial.t is None or trial.t >= 1, f"{what} has t = {trial.t}")
    try:
        space.encode(trial.params)
        for name in (*trial.credit, *trial.trust):
            check_origin(bytes(16), name)
    except (ValueError, TypeError, ArithmeticError) as error:
        raise ValueError(f"{what}: {error}") from None


def _check_points(name: str, points: Sequence[Sequence[float]], space: Space) -> None:
    D = space.dimensions
    _require(all(len(x) == D for x in points), f"{name} are not all of {D} dimensions")
    X = np.array(points, dtype=np.float64)
    inside = (X >= -_SLACK) & (X <= 1.0 + _SLACK)  # NaN is not
    _require(bool(inside.all()), f"{name} are not all inside the cube")


def _check_model(state: SurrogateState, D: int) -> None:
    counts = state.built, state.fitted, state.searched, state.seed
    _require(all(0 <= n < 2**63 for n in counts), f"the model has counts of {counts}")
    if (hyper := state.hyper) is not None:
        kernel_named(hyper.kernel)
        numbers = *hyper.length_scales, hyper.signal_variance, hyper.noise_variance
        _require(len(hyper.length_scales) == D, f"the model is not of {D} dimensions")
        is_sound = all(_LEAST < number < 1.0 / _LEAST for number in numbers)
        _require(is_sound, f"the model has hyper-parameters of {min(numbers)} to {max(numbers)}")


def _check_column(name: str, column: Any, dtype: str, shape: tuple[int, ...]) -> None:
    what = f"{name} in the inbox"
    _require(_is_array(column, dtype) and column.shape == shape, f"{what} is no array of {shape}")
    if name == "used":
        is_sound = column.view(np.uint8) <= 1
    elif name == "incumbents":
        is_sound = ~np.isinf(column)  # NaN: it was not handed out
    elif name == "tips":
        is_sound = ~((column < 0.0) | (column > 1.0))  # NaN: no tip
    elif name == "chance":
        is_sound = (column >= 0.0) & (column <= CHANCE_LIMIT)
    elif name in COUNTER_LIMITS:
        is_sound = (column >= 0) & (column <= COUNTER_LIMITS[name])
    else:
        is_sound = np.isfinite(column)
    _require(bool(np.all(is_sound)), f"{what} has numbers that are not possible")


def _is_array(value: Any, dtype: str) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.newbyteorder("=") == np.dtype(dtype)


def _array(data: Any, dtype: Any, shape: Any) -> NDArray[Any]:
    _require(isinstance(data, bytes), "an array has no bytes")
    _require(isinstance(dtype, str) and bool(_DTYPE.fullmatch(dtype)), "an array has another type")
    is_shape = isinstance(shape, list) and all(type(n) is int and n >= 0 for n in shape)
    _require(is_shape and len(shape) <= 3, "an array has another shape")
    return np.frombuffer(data, dtype=dtype).reshape(shape)


def _split(names: bytes, sizes: Iterable[int]) -> Iterable[str]:
    start = 0
    for size in sizes:
        yield names[start : start + size].decode()
        start += size


def check_settings(saved: Mapping[str, Any]) -> None:
    """Raise a ValueError if settings would make an agent compute for hours.

    Args:
        saved: The settings in a file.
    """
    initial = saved.get("n_initial", 0)
    is_sound = type(initial) is int and initial <= MOST_INITIAL
    _require(is_sound, f"n_initial is more than {MOST_INITIAL:,}")
    surrogate = saved.get("surrogate", {})
    _require(isinstance(surrogate, dict), "surrogate is not a table")
    starts = surrogate.get("fit", {}).get("starts", 0)
    _require(type(starts) is int and starts <= MOST_STARTS, f"starts is more than {MOST_STARTS:,}")
