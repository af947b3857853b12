"""What the agents of a federation agree on, and the TOML file that carries it."""

from __future__ import annotations

import math
import os
import tomllib
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec
import numpy as np

from fedbo import files
from fedbo.federation import file as toml
from fedbo.federation.scalars import Scalars, agreed_scalars
from fedbo.message import COUNTER_LIMITS, Fingerprint, Kind, Message
from fedbo.model.features import Features
from fedbo.space import Categorical, Direction, Float, Int, Parameter, Space
from fedbo.space.axis import Value, number

KernelName = Literal["se", "matern52"]

#: Times √D, as distances in the cube grow: the length scale of features where none is given.
LENGTH_SCALE = 0.3

_SETTINGS = ("features", "kernel", "seed", "length_scale", "noise_variance", "kind", "epoch")
_SCALARS = ("length_scale", "noise_variance")  # what may differ from epoch to epoch
_WORTH_SCALE, _WORTH_NOISE = 1.5, 3.0  # factors of change from which a new epoch is worth it
_TITLE = """
# A fedbo federation: what its agents agree on. Give every agent this very file;
# the messages of one that has other values are refused.
"""


class FederationMismatch(ValueError):
    """Two federations are not the same; the text names the first difference."""


class Federation:
    """The space, the shared features, the message noise, the kind of message and the epoch.

    ``features`` is the number of features M; ``phi`` is the shared map itself, built when first
    used. ``length_scale`` (one, or one for each dimension of the unit
    cube; 0.3 √D if none is given) belongs to those features and ``noise_variance`` to messages, in
    standardised scores: neither has to do with what an agent fits to its own trials. ``kind`` is
    what agents hand out: a draw ("weights"; enough for PTS and FTS), a "belief" (RGPE), or a
    "belief+incumbent" (TAF).

    >>> from fedbo.space import Float
    >>> ours = Federation({"C": Float(1e-4, 10, log=True)}, features=50, seed=7)
    >>> ours.features, ours.phi.M, str(ours.fingerprint)
    (50, 50, 'e2596cd2-58718eac-021d46f1-397948b5')
    >>> ours.difference(Federation({"C": Float(1e-4, 100, log=True)}, features=50, seed=7))
    "parameter 'C': high is 10.0 here and 100.0 there"
    """

    def __init__(
        self,
        space: Space | Mapping[str, Parameter],
        *,
        features: int = 100,
        kernel: KernelName = "se",
        seed: int = 0,
        length_scale: float | tuple[float, ...] | None = None,
        noise_variance: float = 0.1,
        kind: Kind = "weights",
        epoch: int = 0,
    ) -> None:
        _one_of("kernel", kernel, get_args(KernelName))
        _one_of("kind", kind, get_args(Kind))
        self.space = space if isinstance(space, Space) else Space(space)
        self.features = _whole("features", features, 1, 2**31 - 1)
        self.kernel: KernelName = kernel
        self.seed = _whole("seed", seed, 0, 2**63 - 1)
        if length_scale is None:
            length_scale = round(LENGTH_SCALE * math.sqrt(self.space.dimensions), 6)
        self.length_scale = _length_scale(length_scale, self.space.dimensions)
        self.noise_variance = _positive("noise_variance", noise_variance)
        self.kind: Kind = kind
        self.epoch = _whole("epoch", epoch, 0, COUNTER_LIMITS["epoch"])

    @classmethod
    def paper(
        cls,
        space: Space | Mapping[str, Parameter],
        features: int = 100,
        seed: int = 0,
        kind: Kind = "weights",
    ) -> Federation:
        """The settings of the paper's experiments (appendix D).

        >>> from fedbo.space import Float
        >>> Federation.paper({"C": Float(0, 1)}).noise_variance
        1e-06
        """
        return cls(
            space,
            features=features,
            seed=seed,
            length_scale=0.01,
            noise_variance=1e-6,
            kind=kind,
        )

    def next_epoch(
        self,
        *,
        length_scale: float | tuple[float, ...] | None = None,
        noise_variance: float | None = None,
    ) -> Federation:
        """The same federation one epoch on, with the scalars that were agreed anew."""
        agreed = self._agreed() | {"epoch": self.epoch + 1}
        if length_scale is not None:
            agreed["length_scale"] = length_scale
        if noise_variance is not None:
            agreed["noise_variance"] = noise_variance
        return Federation(self.space, **agreed)

    def agree(self, scalars: Iterable[Scalars]) -> Federation:
        """The next epoch, with scalars for these agents; itself if that is not worth an epoch.

        Scalars are `Agent.scalars` of three agents or more (see `fedbo.scalars` for how they are
        combined). Who is given the same ones, in any order, gets the same federation. A new epoch
        makes all messages that are about worthless, so it takes a length scale that changes by half
        or a noise variance that changes threefold. `MessageRefused` names scalars that are foreign.

        >>> from fedbo.space import Float
        >>> ours = Federation({"C": Float(1e-4, 10, log=True)})
        >>> given = [
        ...     Scalars(
        ...         fingerprint=ours.fingerprint,
        ...         sender=name,
        ...         length_scales=(scale,),
        ...         noise_variance=3e-3,
        ...         t_n=20,
        ...     )
        ...     for name, scale in [("a", 0.9), ("b", 1.1), ("c", 1.2)]
        ... ]
        >>> later = ours.agree(given)
        >>> later.epoch, later.length_scale, later.noise_variance
        (1, 0.57, 0.09)
        >>> later.agree(given) is later
        True
        """
        given = [*scalars]
        D = self.space.dimensions
        for one in given:
            one.check(self.fingerprint, D)
        here = np.broadcast_to(self.length_scale, D).tolist()
        agreed = agreed_scalars(given, LENGTH_SCALE * math.sqrt(D), here)
        if agreed is None:
            return self
        length_scales, noise_variance = agreed
        if not (
            any(map(_differ, here, length_scales, [_WORTH_SCALE] * D))
            or _differ(self.noise_variance, noise_variance, _WORTH_NOISE)
        ):
            return self
        return self.next_epoch(length_scale=length_scales, noise_variance=noise_variance)

    def _agreed(self) -> dict[str, Any]:
        """What the constructor takes beside the space, in its order."""
        return {name: getattr(self, name) for name in _SETTINGS}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Federation) and self.difference(other) is None

    def __hash__(self) -> int:
        return hash((self.fingerprint, self.epoch))

    def __repr__(self) -> str:
        agreed = ", ".join(f"{name}={value!r}" for name, value in self._agreed().items())
        return f"Federation({self.space!r}, {agreed})"

    @cached_property
    def phi(self) -> Features:
        """The shared features phi, the same on every machine."""
        return Features(
            self.space.dimensions,
            self.features,
            kernel=self.kernel,
            length_scales=self.length_scale,
            seed=self.seed,
        )

    @cached_property
    def fingerprint(self) -> Fingerprint:
        """The agreement in 16 bytes; all of it but the epoch, which messages carry themselves."""
        return Fingerprint.from_parts(
            space=_space_part(self.space),
            features=[self.kernel, self.features, self.seed],
            kind=self.kind,
            scalars=[self.length_scale, self.noise_variance],
        )

    def check(self, message: Message) -> None:
        """Raise `MessageRefused`, which says why, unless the message fits this federation."""
        message.check(
            fingerprint=self.fingerprint,
            epoch=self.epoch,
            kind=self.kind,
            M=self.features,
            noise_variance=self.noise_variance,
        )

    def difference(self, other: Federation) -> str | None:
        """A sentence that names the first difference, or None if there is none."""
        difference = self.space.difference(other.space)
        if difference is not None:
            return difference
        ours, theirs = self._agreed(), other._agreed()
        for name in _SETTINGS:
            if ours[name] != theirs[name]:
                return f"{name} is {ours[name]!r} here and {theirs[name]!r} there"
        return None

    def require_same(self, other: Federation) -> None:
        """Raise `FederationMismatch` unless the other federation is this one."""
        difference = self.difference(other)
        if difference is not None:
            raise FederationMismatch(f"the federations differ: {difference}")

    def require_later(self, other: Federation) -> None:
        """Raise `FederationMismatch` unless the other is this one in this or a later epoch."""
        if other.epoch > self.epoch:
            kept = {name: getattr(self, name) for name in (*_SCALARS, "epoch")}
            other = Federation(other.space, **other._agreed() | kept)
        self.require_same(other)

    def to_toml(self) -> str:
        """The text of the TOML file."""
        return toml.dumps(self._agreed() | {"space": _space_table(self.space)}, _TITLE)

    @classmethod
    def from_toml(cls, text: str) -> Federation:
        """Read what `to_toml` or a person wrote; a setting that is left out has its default."""
        return _federation(tomllib.loads(text))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the TOML file, whole or not at all."""
        files.write(path, self.to_toml().encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Federation:
        """Read the TOML file; what is wrong with it is an error that names the file."""
        try:
            return cls.from_toml(Path(path).read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{os.fspath(path)}: {error}") from error


class _SpaceTable(msgspec.Struct, forbid_unknown_fields=True):
    """[space] in a file; the parameters are read one by one, so that errors can name them."""

    parameters: dict[str, Any]
    direction: Direction = "maximize"
    points: list[dict[str, Value]] | None = None


def _federation(table: dict[str, Any]) -> Federation:
    unknown = [key for key in table if key not in ("space", *_SETTINGS)]
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}, expected one of {', '.join(_SETTINGS)}")
    try:
        given = msgspec.convert(table.pop("space", {}), _SpaceTable)
    except msgspec.ValidationError as error:
        raise ValueError(f"[space]: {error}") from None
    parameters = {name: _parameter(name, fields) for name, fields in given.parameters.items()}
    return Federation(Space(parameters, direction=given.direction, points=given.points), **table)


def _parameter(name: str, fields: object) -> Parameter:
    try:
        return msgspec.convert(fields, Float | Int | Categorical)
    except msgspec.ValidationError as error:
        raise ValueError(f"parameter {name!r}: {error}") from None


def _space_table(space: Space) -> dict[str, Any]:
    points = {} if space.listed is None else {"points": space.listed}
    parameters = {name: msgspec.to_builtins(given) for name, given in space.parameters.items()}
    return {"direction": space.direction, **points, "parameters": parameters}


def _space_part(space: Space) -> list[object]:
    """The space as its fingerprint sees it: parameters as pairs, because their order counts."""
    table = _space_table(space)
    points = [[point[name] for name in space.names] for point in table.get("points", [])]
    return [table["direction"], [*table["parameters"].items()], points]


def _one_of(what: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"{what} is {value!r}, expected one of {', '.join(map(repr, known))}")


def _whole(what: str, value: object, low: int, high: int) -> int:
    given = number(value, int)
    if not low <= given <= high:
        raise ValueError(f"{what} is {value!r}, expected an int from {low} to {high}")
    return int(given)


def _positive(what: str, value: object) -> float:
    given = number(value, float)
    if not given > 0:
        raise ValueError(f"{what} is {value!r}, expected a finite number above 0")
    return given


def _differ(here: float, there: float, factor: float) -> bool:
    return not here <= factor * there or not there <= factor * here


def _length_scale(value: object, dimensions: int) -> float | tuple[float, ...]:
    """One number, or D of them that are not all the same."""
    if not isinstance(value, list | tuple | np.ndarray):
        return _positive("length_scale", value)
    scales = tuple(_positive("length_scale", scale) for scale in value)
    if len(scales) != dimensions:
        raise ValueError(
            f"length_scale is {value!r}, expected one number or {dimensions}, "
            "one for each dimension of the cube"
        )
    return scales if len(set(scales)) > 1 else scales[0]
