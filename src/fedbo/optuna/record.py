"""What a study stores about its agent, and about where each of its queries came from.

Both are system attributes of Optuna, so any worker can rebuild the agent from the study alone.
A trial has the attribute ``fedbo:query``, an `Asked`; the study has ``fedbo:agent:<token>``, its
`Identity`. Two workers that start at the same time may each write an identity, because Optuna
cannot write an attribute on a condition. So each draws a token, and the smallest one counts.
"""

from __future__ import annotations

import secrets

import msgspec
import optuna
from optuna.trial import FrozenTrial

from fedbo.optuna import private
from fedbo.policy.origin import Origin, Source
from fedbo.space.axis import Value

QUERY = "fedbo:query"
AGENT = "fedbo:agent:"


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent asked for in a trial of the study.

    ``params`` are in the federation's values. The trial may have run elsewhere: enqueued, fixed by
    another sampler, or clipped to a narrower range.
    """

    origin: Origin
    t: int | None = None
    params: dict[str, Value] = {}


class _Stored(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The same, with the names that studies have."""

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
    """Return what the agent asked for in a trial, or None if fedbo did not ask for it.

    A record that cannot be read, such as one of a later version, counts as none.

    >>> written = {QUERY: {"source": "own", "t": 3, "params": {"x": 0.5}}}
    >>> read_asked(optuna.trial.create_trial(value=1.0, system_attrs=written))
    Asked(origin=Origin(source='own', credit={}, trust={}), t=3, params={'x': 0.5})
    """
    written = trial.system_attrs.get(QUERY)
    if written is None:
        return None
    try:
        stored = msgspec.convert(written, _Stored)
        credit = stored.credit or ({stored.peer: 1.0} if stored.peer else {})
        origin = Origin(stored.source, credit=credit, trust=stored.weights)
    except ValueError:
        return None
    return Asked(origin=origin, t=stored.t, params=stored.params)


def read_origin(trial: FrozenTrial) -> Origin | None:
    """Return where a trial's query came from, or None if fedbo did not ask for it."""
    asked = read_asked(trial)
    return None if asked is None else asked.origin


def write_asked(study: optuna.Study, trial: FrozenTrial, asked: Asked) -> None:
    """Store what the agent asked for in a trial."""
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
    """Give the study this agent unless it has one, and return the one that counts."""
    if _find(study) is None:
        _write(study, AGENT + secrets.token_hex(8), newcomer)
    found = _find(study)
    assert found is not None
    return found[1]


def advance(study: optuna.Study, federation: str, epoch: int) -> Identity:
    """Let the study's agent go on in a later epoch of its federation, and return it."""
    found = _find(study)
    assert found is not None
    key, known = found
    later = msgspec.structs.replace(known, federation=federation, epoch=epoch)
    _write(study, key, later)
    return later


def _find(study: optuna.Study) -> tuple[str, Identity] | None:
    attributes = private.study_attributes(study)
    key = min((key for key in attributes if key.startswith(AGENT)), default=None)
    return None if key is None else (key, msgspec.convert(attributes[key], Identity))


def _write(study: optuna.Study, key: str, written: Identity) -> None:
    private.set_study_attribute(study, key, msgspec.to_builtins(written))
