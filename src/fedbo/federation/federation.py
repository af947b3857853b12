"""What the agents of a federation agree on."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from fedbo import files
from fedbo.federation import file
from fedbo.federation.scalars import Scalars, agreed_scalars
from fedbo.message import Fingerprint, Kind, Message
from fedbo.message.signed import COUNTER_LIMITS
from fedbo.model.features import Features
from fedbo.space import Parameter, Space
from fedbo.space.axis import number

KernelName = Literal["se", "matern52"]

#: The default length scale of the features is this times √D, as distances in the cube grow.
LENGTH_SCALE = 0.3

_SETTINGS = ("features", "kernel", "seed", "length_scale", "noise_variance", "kind", "epoch")
_SCALARS = ("length_scale", "noise_variance")  # what may differ from epoch to epoch
_WORTH_SCALE, _WORTH_NOISE = 1.5, 3.0  # a new epoch needs a change by one of these factors


class FederationMismatch(ValueError):
    """Two federations differ; the text names the first difference."""


class Federation:
    """What agents agree on before they can help one another.

    Every agent of a federation has the same one, usually from the same ``federation.toml``. Its
    length scale and noise variance concern messages only; they have nothing to do with what an
    agent fits to its own trials.

    Args:
        space: The parameters that are searched, by name, or a `Space`.
        features: The number M of shared random features, and of weights in a message.
        kernel: The kernel that the features approximate, "se" or "matern52".
        seed: The seed of the features.
        length_scale: The length scale of the features on the unit cube: one number, or one for each
            dimension. The default is 0.3 √D.
        noise_variance: The variance of the noise in messages, in standardised scores.
        kind: What agents send: "weights", one draw, which is enough for PTS and FTS; "belief" for
            RGPE; "belief+incumbent" for TAF.
        epoch: The version of the length scale and the noise variance; see `next_epoch`.

    >>> from fedbo.space import Float
    >>> ours = Federation({"C": Float(1e-4, 10, log=True)}, features=50, seed=7)
    >>> ours
    Federation(['C'], maximize, features=50, kernel='se', seed=7, length_scale=0.3, ...)
    >>> str(ours.fingerprint)
    'e2596cd2-58718eac-021d46f1-397948b5'
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
        self.members: dict[str, bytes] = {}

    def next_epoch(
        self,
        *,
        length_scale: float | tuple[float, ...] | None = None,
        noise_variance: float | None = None,
    ) -> Federation:
        """Return the same federation, one epoch later.

        Args:
            length_scale: The new length scale; unchanged by default.
            noise_variance: The new noise variance; unchanged by default.
        """
        agreed = self._agreed() | {"epoch": self.epoch + 1}
        if length_scale is not None:
            agreed["length_scale"] = length_scale
        if noise_variance is not None:
            agreed["noise_variance"] = noise_variance
        return Federation(self.space, **agreed)

    def agree(self, scalars: Iterable[Scalars]) -> Federation:
        """Return the next epoch with scalars that suit these agents, or self if they change little.

        A new epoch invalidates every message in circulation. So a length scale must change by a
        factor of 1.5, or the noise variance by a factor of 3. The same scalars, in any order, give
        the same federation; `fedbo.federation.scalars` says how.

        Args:
            scalars: What `Agent.scalars` returned at three agents or more.

        Raises:
            MessageRefused: If some scalars are of another federation; the text says which.

        >>> from fedbo.space import Float
        >>> ours = Federation({"C": Float(1e-4, 10, log=True)})
        >>> fitted = {"length_scales": (1.1,), "noise_variance": 3e-3, "t_n": 20}
        >>> given = [Scalars(fingerprint=ours.fingerprint, sender=n, **fitted) for n in "abc"]
        >>> later = ours.agree(given)
        >>> later.epoch, later.length_scale, later.noise_variance
        (1, 0.57, 0.09)
        """
        D, given = self.space.dimensions, [*scalars]
        for one in given:
            one.check(self.fingerprint, D)
        here = np.broadcast_to(self.length_scale, D).tolist()
        agreed = agreed_scalars(given, LENGTH_SCALE * math.sqrt(D), here)
        if agreed is None:
            return self
        scales, noise = agreed
        if any(_differ(a, b, _WORTH_SCALE) for a, b in zip(here, scales, strict=True)) or _differ(
            self.noise_variance, noise, _WORTH_NOISE
        ):
            return self.next_epoch(length_scale=scales, noise_variance=noise)
        return self

    def _agreed(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _SETTINGS}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Federation) and self.difference(other) is None

    def __hash__(self) -> int:
        return hash((self.fingerprint, self.epoch))

    def __repr__(self) -> str:
        agreed = ", ".join(f"{name}={value!r}" for name, value in self._agreed().items())
        return f"Federation({[*self.space.names]}, {self.space.direction}, {agreed})"

    @cached_property
    def phi(self) -> Features:
        """The shared feature map φ, the same on every machine."""
        return Features(
            self.space.dimensions,
            self.features,
            kernel=self.kernel,
            length_scales=self.length_scale,
            seed=self.seed,
        )

    @cached_property
    def fingerprint(self) -> Fingerprint:
        """16 bytes that identify the agreement, except for its epoch, which messages carry too."""
        return Fingerprint.from_parts(
            space=_space_part(self.space),
            features=[self.kernel, self.features, self.seed],
            kind=self.kind,
            scalars=[self.length_scale, self.noise_variance],
        )

    def check(self, message: Message) -> None:
        """Raise `MessageRefused`, with the reason, if a message does not fit this federation.

        Args:
            message: The message of any agent.
        """
        message.check(
            fingerprint=self.fingerprint,
            epoch=self.epoch,
            kind=self.kind,
            M=self.features,
            noise_variance=self.noise_variance,
        )

    def difference(self, other: Federation) -> str | None:
        """Describe the first difference in a sentence; return None if there is none.

        Args:
            other: The federation to compare with.
        """
        theirs = other._agreed()
        settings = (
            f"{name} is {value!r} here and {theirs[name]!r} there"
            for name, value in self._agreed().items()
            if value != theirs[name]
        )
        return self.space.difference(other.space) or next(settings, None)

    def require_same(self, other: Federation) -> None:
        """Raise `FederationMismatch` if the other federation differs from this one.

        Args:
            other: The federation to compare with.
        """
        difference = self.difference(other)
        if difference is not None:
            raise FederationMismatch(f"the federations differ: {difference}")

    def require_later(self, other: Federation) -> None:
        """Raise `FederationMismatch` unless the other is this one, in this or a later epoch.

        Args:
            other: The federation to compare with.
        """
        if other.epoch > self.epoch:
            kept = {name: getattr(self, name) for name in (*_SCALARS, "epoch")}
            other = Federation(other.space, **other._agreed() | kept)
        self.require_same(other)

    def to_toml(self) -> str:
        """Return the text of the TOML file."""
        return file.dumps(self._agreed(), self.space)

    @classmethod
    def from_toml(cls, text: str) -> Federation:
        """Read the text of a TOML file; a setting that is missing has its default.

        Args:
            text: The text of the file.

        Raises:
            ValueError: If something in it is wrong; the text says what.
        """
        settings, space = file.loads(text)
        for key in settings:
            if key not in _SETTINGS:
                raise ValueError(f"unknown key {key!r}, expected one of {', '.join(_SETTINGS)}")
        return cls(space, **settings)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the TOML file, completely or not at all.

        Args:
            path: The file; an existing one is replaced.
        """
        files.write(path, self.to_toml().encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Federation:
        """Read a TOML file.

        Args:
            path: The file, in UTF-8.

        Raises:
            OSError: If the file cannot be read.
            ValueError: If something in it is wrong; the text names the file and the setting.
        """
        try:
            return cls.from_toml(Path(path).read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{os.fspath(path)}: {error}") from error


def _space_part(space: Space) -> list[object]:
    table = file.space_table(space)  # parameters as pairs, because their order counts
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
    if not isinstance(value, list | tuple | np.ndarray):
        return _positive("length_scale", value)
    scales = tuple(_positive("length_scale", scale) for scale in value)
    if len(scales) != dimensions:
        expected = f"one number or {dimensions}, one for each dimension of the cube"
        raise ValueError(f"length_scale is {value!r}, expected {expected}")
    return scales if len(set(scales)) > 1 else scales[0]  # D equal numbers become one
