"""What a study remembers of its agent: who asks in it, and where each of its queries came from.

Both lie in Optuna's system attributes, so that any worker, or the same one next week, can rebuild
the agent from the study alone. A trial has one attribute, ``fedbo:query``: its `Origin`. The study
has ``fedbo:agent:<token>``: its `Identity`. Two workers that start at once may each write one;
attributes cannot be written on a condition, so each has a key of its own, and of several the one
with the smallest token counts.
"""

from __future__ import annotations

import secrets
from typing import Any

import msgspec
import optuna
from optuna.trial import FrozenTrial

from fedbo.policy.origin import Source
from fedbo.space.axis import Value

QUERY = "fedbo:query"
AGENT = "fedbo:agent:"


class Origin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a trial's query came from: see `fedbo.Trial` for ``source`` to ``weights``.

    ``params`` are what the agent asked for, in the federation's values. The trial's own may differ:
    enqueued, fixed by another sampler, or clipped to the site's own range.
    """

    source: Source
    t: int | None = None
    peer: str | None = None
    credit: dict[str, float] = {}
    weights: dict[str, float] = {}
    params: dict[str, Value] = {}


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """The study's agent: its name among peers, and the secret that all its randomness comes from.

    ``federation`` and ``epoch`` are the fingerprint and the epoch of the federation it works in, if
    that is not made of the study itself.
    """

    name: str
    entropy: str  # hexadecimal
    federation: str = ""
    epoch: int = 0


def read_origin(trial: FrozenTrial) -> Origin | None:
    """Where this trial's query came from; None if fedbo did not ask for it.

    >>> written = {QUERY: {"source": "own", "t": 3}}
    >>> read_origin(optuna.trial.create_trial(value=1.0, system_attrs=written))
    Origin(source='own', t=3, peer=None, credit={}, weights={}, params={})
    """
    written = trial.system_attrs.get(QUERY)
    if written is None:
        return None
    try:
        return msgspec.convert(written, Origin)
    except msgspec.ValidationError:
        return None  # written by another version, or by hand: then its score counts, no more


def write(study: optuna.Study, trial: FrozenTrial, origin: Origin) -> None:
    """Let the trial remember where its query came from."""
    written: Any = msgspec.to_builtins(origin)
    study._storage.set_trial_system_attr(trial._trial_id, QUERY, written)


def identity(study: optuna.Study) -> Identity | None:
    """The study's agent, or None before its first query."""
    found = _found(study)
    return None if found is None else found[1]


def introduce(study: optuna.Study, identity_: Identity) -> Identity:
    """Give the study this agent, unless it has one; the one it has from now on."""
    known = identity(study)
    if known is None:
        _write(study, AGENT + secrets.token_hex(8), identity_)
        known = identity(study)
        assert known is not None
    return known


def advance(study: optuna.Study, federation: str, epoch: int) -> Identity:
    """The study's agent, which goes on in a later epoch of its federation."""
    found = _found(study)
    assert found is not None
    key, known = found
    later = msgspec.structs.replace(known, federation=federation, epoch=epoch)
    _write(study, key, later)
    return later


def _found(study: optuna.Study) -> tuple[str, Identity] | None:
    attributes = study._storage.get_study_system_attrs(study._study_id)
    found = sorted(key for key in attributes if key.startswith(AGENT))
    return (found[0], msgspec.convert(attributes[found[0]], Identity)) if found else None


def _write(study: optuna.Study, key: str, identity_: Identity) -> None:
    written: Any = msgspec.to_builtins(identity_)
    study._storage.set_study_system_attr(study._study_id, key, written)
