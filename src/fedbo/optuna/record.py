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

from fedbo.axis import Value
from fedbo.trial import Source

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

    ``federation`` is the fingerprint of the federation it first worked in.
    """

    name: str
    entropy: str  # hexadecimal
    federation: str = ""


def of(trial: FrozenTrial) -> Origin | None:
    """Where this trial's query came from; None if fedbo did not ask for it.

    >>> written = {QUERY: {"source": "own", "t": 3}}
    >>> of(optuna.trial.create_trial(value=1.0, system_attrs=written))
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
    attributes = study._storage.get_study_system_attrs(study._study_id)
    found = sorted(key for key in attributes if key.startswith(AGENT))
    return msgspec.convert(attributes[found[0]], Identity) if found else None


def introduce(study: optuna.Study, identity_: Identity) -> Identity:
    """Give the study this agent, unless it has one; the one it has from now on."""
    known = identity(study)
    if known is None:
        key, written = AGENT + secrets.token_hex(8), msgspec.to_builtins(identity_)
        study._storage.set_study_system_attr(study._study_id, key, written)
        known = identity(study)
        assert known is not None
    return known
