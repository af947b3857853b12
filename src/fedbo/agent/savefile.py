"""The file an agent is saved to: written completely, checked when it is read. No pickle.

A file may come from anyone, or be damaged cleverly. What passes the checks can be shown, and
computed with in little time and memory.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from typing import Any, cast, get_args

import msgspec

from fedbo import files
from fedbo.agent.settings import Settings
from fedbo.agent.trial import Account, Trial
from fedbo.errors import FileRefused, KeyRefused
from fedbo.federation.federation import Federation
from fedbo.message.signed import check_name, key_text, parse_key
from fedbo.model.kernel import kernel_named
from fedbo.model.surrogate import SurrogateState
from fedbo.outside import shortened
from fedbo.policy.base import Policy
from fedbo.policy.fts import FTS, TS
from fedbo.policy.pool import EI, TipsThenPool
from fedbo.policy.rgpe import RGPE
from fedbo.policy.taf import TAF
from fedbo.space.axis import Categorical, Float, Int, Value
from fedbo.space.space import extended

_LARGEST = 2**31  # bytes
_TITLE = "fedbo agent 1"
_LONGEST = 300  # characters of an error, which may repeat what is in a file
_MOST_INITIAL = 10_000  # initial points
_MOST_STARTS = 1_000  # of a fit
_LEAST = 1e-100  # of a hyper-parameter
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


class Saved(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The content of the file; a policy or settings of None must be given again."""

    federation: str
    policy: _Known | None
    name: str
    settings: Settings | None
    entropy: str  # a whole number
    rng: str  # as JSON
    trials: list[Trial]
    order: list[int]
    initial: list[dict[str, Value]] | None
    within: dict[str, Float | Int | Categorical]
    own: dict[str, Float | Int | Categorical]
    surrogate: SurrogateState
    constraint_models: list[SurrogateState]
    account: Account
    inbox: dict[str, Any]
    signer: str
    held: dict[str, bytes]  # keys of the signed messages in the inbox, by sender
    known: dict[str, str]  # keys of peers, by name
    revoked: list[str]  # keys


def write(path: str | os.PathLike[str], saved: Saved) -> None:
    """Write the file completely or not at all, and remove what killed writers left of it.

    Only its user can read it: it has all trials, and the source of the noise in messages.
    """
    files.write(path, files.seal(_TITLE, msgspec.msgpack.encode(saved)), 0o600)


def read(path: str | os.PathLike[str]) -> tuple[Saved, Federation]:
    """Return what `write` wrote, and the federation in it; refuse anything else."""
    name = os.fspath(path)
    try:
        data = files.read(path, _LARGEST)
    except FileRefused as error:
        raise FileRefused(f"{name} holds no usable agent: {error}") from None
    payload = files.unseal(_TITLE, data, name)
    with refusing(path):
        saved = msgspec.msgpack.decode(payload, type=Saved)
        federation = Federation.from_toml(saved.federation)
        _check(saved, federation)
    return saved, federation


@contextlib.contextmanager
def refusing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Refuse the file if what is done with its content fails."""
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


def _check(saved: Saved, federation: Federation) -> None:
    """Raise a ValueError, which says why, if an agent of this federation cannot have saved this."""
    _require(saved.entropy.isdecimal(), "entropy is not a whole number")
    for key in filter(None, [saved.signer, *saved.known.values(), *saved.revoked]):
        parse_key(key)
    for held in saved.held.values():
        key_text(held)
    complete = []
    for number, trial in enumerate(saved.trials):
        _require(trial.number == number, f"trial {number} has number {trial.number}")
        _check_trial(trial, saved.name)
        complete += [number] if trial.state == "complete" else []
    _require(sorted(saved.order) == complete, "order does not have each complete trial once")
    D = (extended(federation.space, saved.own) if saved.own else federation.space).dimensions
    for state in (saved.surrogate, *saved.constraint_models):
        _check_model(state, D)
    widths = {len(saved.trials[number].constraints) for number in complete}
    _require(len(widths) <= 1, "trials have different numbers of constraints")
    _require(
        len(saved.constraint_models) <= max(widths, default=0),
        "there are more models of constraints than constraints",
    )
    if saved.settings is not None:
        points, starts = saved.settings.n_initial, saved.settings.surrogate.fit.starts
        _require(points <= _MOST_INITIAL, f"n_initial is more than {_MOST_INITIAL:,}")
        _require(starts <= _MOST_STARTS, f"starts is more than {_MOST_STARTS:,}")


def _check_trial(trial: Trial, agent: str) -> None:
    what = f"trial {trial.number}"
    _require(trial.agent == agent, f"{what} is of another agent")
    is_scored = trial.score is not None and math.isfinite(trial.score)
    is_told = is_scored if trial.state == "complete" else trial.score is None
    _require(is_told, f"{what} is {trial.state} with score {trial.score}")
    is_sound = trial.score is not None or not trial.constraints
    _require(is_sound and all(map(math.isfinite, trial.constraints)), f"{what} has constraints")
    _require(trial.t is None or trial.t >= 1, f"{what} has t = {trial.t}")
    for name in (*trial.credit, *trial.trust):
        check_name(name)


def _check_model(state: SurrogateState, D: int) -> None:
    counts = state.built, state.fitted, state.searched, state.seed
    _require(all(0 <= n < 2**63 for n in counts), f"the model has counts of {counts}")
    if (hyper := state.hyper) is not None:
        kernel_named(hyper.kernel)
        numbers = *hyper.length_scales, hyper.signal_variance, hyper.noise_variance
        _require(len(hyper.length_scales) == D, f"the model is not of {D} dimensions")
        is_sound = all(_LEAST < number < 1.0 / _LEAST for number in numbers)
        _require(is_sound, f"the model has hyper-parameters of {min(numbers)} to {max(numbers)}")


def _require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise ValueError(otherwise)
