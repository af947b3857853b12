"""What a study stores about its agent, and about where each of its queries came from.

Both are system attributes of Optuna, so any worker can rebuild the agent from the study alone: an
`Asked` in each trial, and an `Identity` in the study. Two workers that start at the same time may
each write an identity. So each draws a token for the name of the attribute, and the smallest
token counts.
"""

from __future__ import annotations

import secrets

import msgspec
import optuna
from optuna.trial import FrozenTrial

from fedbo.optuna import private
from fedbo.policy.query import Origin, Source
from fedbo.space.axis import Value

QUERY = "fedbo:query"  # an attribute of trials
AGENT = "fedbo:agent:"  # an attribute of the study, followed by a token


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent asked for in a trial, which may have run elsewhere: enqueued or clipped."""

    origin: Origin
    t: int | None = None
    params: dict[str, Value] = {}  # the federation's, not the study's


class _Stored(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An `Asked` as studies store it."""

    source: Source
    t: int | None = None
    peer: str | None = None
    credit: dict[str, float] = {}
    weights: dict[str, float] = {}
    params: dict[str, Value] = {}


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """The agent of a study."""

    name: str  # among peers
    entropy: str  # the secret that all its randomness comes from, in hexadecimal
    federation: str = ""  # its fingerprint; empty if the study makes its own
    epoch: int = 0


def read_asked(trial: FrozenTrial) -> Asked | None:
    """Return what the agent asked for in a trial; None if there is no record that can be read.

    >>> written = {QUERY: {"source": "own", "t": 3, "params": {"x": 0.5}}}
    >>> read_asked(optuna.trial.create_trial(value=1.0, system_attrs=written))
    Asked(origin=Origin(source='own', credit={}, trust={}), t=3, params={'x': 0.5})
    """
    try:
        stored = msgspec.convert(trial.system_attrs.get(QUERY), _Stored)
        credit = stored.credit or ({stored.peer: 1.0} if stored.peer else {})
        origin = Origin(stored.source, credit=credit, trust=stored.weights)
    except ValueError:
        return None
    return Asked(origin=origin, t=stored.t, params=stored.params)


def read_origin(trial: FrozenTrial) -> Origin | None:
    """Return where a trial's query came from; None if there is no record that can be read."""
    asked = read_asked(trial)
    return None if asked is None else asked.origin


def write_asked(study: optuna.Study, trial: FrozenTrial, asked: Asked) -> None:
    origin = asked.origin
    stored = _Stored(
        source=origin.source,
        t=asked.t,
        peer=origin.peer,
        credit=origin.credit,
        weights=origin.trust,
        params=asked.params,
    )
    private.set_trial_attribute(study, trial, QUERY, msgspec.to_builtins(stored))


def identity(study: optuna.Study) -> Identity | None:
    """Return the study's agent, or None before its first query."""
    found = _find(study)
    return None if found is None else found[1]


def introduce(study: optuna.Study, newcomer: Identity) -> Identity:
    """Store this agent unless the study has one, and return the one that counts.

    If the newcomer is of a later epoch of the federation, the study's agent goes on in that epoch.
    """
    found = _find(study)
    if found is None:
        _write(study, AGENT + secrets.token_hex(8), newcomer)
        found = _find(study)  # another worker's may count instead
    assert found is not None
    key, known = found
    if newcomer.epoch > known.epoch:
        federation, epoch = newcomer.federation, newcomer.epoch
        known = msgspec.structs.replace(known, federation=federation, epoch=epoch)
        _write(study, key, known)
    return known


def _find(study: optuna.Study) -> tuple[str, Identity] | None:
    attributes = private.study_attributes(study)
    key = min((key for key in attributes if key.startswith(AGENT)), default=None)
    return None if key is None else (key, msgspec.convert(attributes[key], Identity))


def _write(study: optuna.Study, key: str, written: Identity) -> None:
    private.set_study_attribute(study, key, msgspec.to_builtins(written))
