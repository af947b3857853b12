"""What a study stores about its agent, and about where each of its queries came from.

Both are system attributes of Optuna, so any worker can rebuild the agent from the study alone: an
`Asked` in each trial, and an `Identity` in the study. Two workers that start at the same time may
each write an identity. So each draws a token for the name of the attribute, and the smallest
token counts. What may change later has attributes of its own, so that no worker overwrites what
another one has just changed: the key, the name, and every name that the study ever had.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Mapping
from typing import Any

import msgspec
import optuna
from optuna.distributions import (
    BaseDistribution,
    distribution_to_json,
    json_to_distribution,
)
from optuna.trial import FrozenTrial

from fedbo.optuna import private
from fedbo.policy.target import Origin, Source
from fedbo.space.axis import Value

QUERY = "fedbo:query"  # an attribute of trials
AGENT = "fedbo:agent:"  # an attribute of the study, followed by a token
KEY = "fedbo:key"  # an attribute of the study that got a key later, or another one
NAME = "fedbo:name"  # an attribute of the study that was renamed: its name now
NAMES = "fedbo:names:"  # attributes of that study, each followed by a name that it was given
SPACE = "fedbo:space:"  # attributes of a study without a federation file, followed by a digest


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
    key: str = ""  # the public key that its messages are signed with; empty if they are not
    former: tuple[str, ...] = ()  # the other names that peers may know it by

    @property
    def study(self) -> str:
        """What the ledger calls the study: the same on all machines, and told to no peer."""
        return hashlib.sha256(f"study {self.entropy}".encode()).hexdigest()[:16]


def draw_name() -> str:
    """Draw a name for a study that was given none."""
    return f"agent-{secrets.token_hex(4)}"


def is_drawn(name: str) -> bool:
    """Return whether `draw_name` could have drawn this name.

    >>> is_drawn("agent-cd047e26"), is_drawn("agent-smith")
    (True, False)
    """
    return re.fullmatch("agent-[0-9a-f]{8}", name) is not None


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
    attributes = private.study_attributes(study)
    found = _find(attributes)
    if found is None:
        return None
    _, stored = found
    name = str(attributes.get(NAME, stored.name))
    given = [key.removeprefix(NAMES) for key in attributes if key.startswith(NAMES)]
    former = sorted({stored.name, *given} - {name})
    key = str(attributes.get(KEY, stored.key))
    return msgspec.structs.replace(stored, name=name, key=key, former=tuple(former))


def introduce(study: optuna.Study, newcomer: Identity) -> Identity:
    """Store this agent unless the study has one, and return the one that counts.

    If the newcomer is of a later epoch of the federation, the study's agent goes on in that epoch.
    """
    found = _find(private.study_attributes(study))
    if found is None:
        _write(study, AGENT + secrets.token_hex(8), newcomer)
        found = _find(private.study_attributes(study))  # another worker's may count instead
    assert found is not None
    key, stored = found
    if newcomer.epoch > stored.epoch:
        federation, epoch = newcomer.federation, newcomer.epoch
        _write(study, key, msgspec.structs.replace(stored, federation=federation, epoch=epoch))
    return _known(study)


def spaces(study: optuna.Study) -> list[dict[str, BaseDistribution]]:
    """Return the spaces that the study had without a federation file, in any order."""
    found = []
    for key, stored in private.study_attributes(study).items():
        if key.startswith(SPACE):
            found.append({name: json_to_distribution(text) for name, text in stored.items()})
    return found


def add_space(study: optuna.Study, space: Mapping[str, BaseDistribution]) -> None:
    """Store a space that the study has without a federation file."""
    try:
        stored = {name: distribution_to_json(given) for name, given in space.items()}
    except (TypeError, ValueError):  # choices that only a storage in memory can hold
        return
    digest = hashlib.sha256(json.dumps(stored, sort_keys=True).encode()).hexdigest()[:16]
    private.set_study_attribute(study, SPACE + digest, stored)


def rename(study: optuna.Study, name: str) -> Identity:
    """Give the study's agent another name among peers. Its secret stays the same.

    If two workers do so at the same time, the last one counts, and neither name is forgotten.
    """
    private.set_study_attribute(study, NAMES + name, True)
    private.set_study_attribute(study, NAME, name)
    return _known(study)


def set_key(study: optuna.Study, key: str) -> Identity:
    """Store the public key that the study's messages are signed with from now on.

    If two workers do so at the same time, the last one counts.
    """
    private.set_study_attribute(study, KEY, key)
    return _known(study)


def _known(study: optuna.Study) -> Identity:
    known = identity(study)
    assert known is not None
    return known


def _find(attributes: Mapping[str, Any]) -> tuple[str, Identity] | None:
    """Return the identity that counts, as it was written, and the name of its attribute."""
    key = min((key for key in attributes if key.startswith(AGENT)), default=None)
    return None if key is None else (key, msgspec.convert(attributes[key], Identity))


def _write(study: optuna.Study, key: str, written: Identity) -> None:
    stored = msgspec.to_builtins(written)
    del stored["former"]  # which has attributes of its own
    if not written.key:
        del stored["key"]
    private.set_study_attribute(study, key, stored)
