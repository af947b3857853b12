"""What the agents of a federation agree on: a record, its file and its fingerprint.

Nothing here computes with the features, so a hub can check what it keeps without any model.
`fedbo.federation.shared` has what agents derive from the record.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Literal, get_args

from fedbo import files
from fedbo.errors import FederationMismatch, MessageRefused
from fedbo.federation import file
from fedbo.federation.calibration import noise_fault
from fedbo.federation.plan import Plan
from fedbo.message.compact import packed_bytes
from fedbo.message.message import Heard, Kind, Message, MessageKind, read
from fedbo.message.release import COORDINATES, RELEASE_BYTES, Release
from fedbo.message.signed import (
    BASIS_BYTES,
    MOST_CELLS,
    MOST_COORDINATES,
    Fingerprint,
    Withdrawal,
    check_member,
    key_text,
    parse_key,
)
from fedbo.space.axis import Parameter, number
from fedbo.space.space import Lattice, Space

KernelName = Literal["se", "matern52"]

#: The format of the file.
FORMAT = 1

#: A model over M features needs matrices of M x M numbers: 200 MB each for this many.
MOST_FEATURES = 5000

#: The default length scale of the features is this times √D, as distances in the cube grow.
LENGTH_SCALE = 0.3

_SETTINGS = ("features", "kernel", "seed", "length_scale", "noise_variance", "kind", "tips")
#: Beyond these, features are constant or noise, or numbers overflow.
_SCALE_LIMITS = (1e-6, 1e6)
_NOISE_LIMITS = (1e-10, 1e6)
_KEYS = ("format", *_SETTINGS, "members", "privacy", "space")  # of the file
_LONGEST = 600  # characters of an error, which may repeat anything that is in a file
_BESIDE = 512  # bytes beside the numbers, or more: names, counters, the key and the signature


class Federation:
    """What agents agree on before they can help one another.

    Every agent of a federation has the same one, usually from the same ``federation.toml``. Its
    length scale and noise variance concern messages only; they have nothing to do with what an
    agent fits to its own trials.

    The order in which parameters and choices are given does not matter: the federation's ``space``
    has them in canonical order, see `Space.canonical`.

    Args:
        space: The parameters that are searched, by name, or a `Space`.
        features: The number M of shared random features, and of numbers in a message of weights;
            at most 5,000.
        kernel: The kernel that the features approximate, "se" or "matern52".
        seed: The seed of the features.
        length_scale: The length scale of the features on the unit cube, 1e-6 to 1e6. The default is
            0.3 √D.
        noise_variance: The variance of the noise in messages, in standardised scores; 1e-10 to 1e6.
        kind: What agents send: "compact" (the default), roughly what an agent knows and in which
            public cells its trials are, and a tip, for `TipsThenPool`; "weights", one draw as in
            the paper, for FTS; "belief" for RGPE and TAF, from which trials can be computed. With
            ``privacy``, it is what agents make of a release.
        tips: Whether compact messages may name a tip, the point that its sender recommends; True by
            default. Without tips, peers are asked where their functions are largest.
        members: The public keys of the members by name, as `fedbo.message.signed` writes them. If
            there are any, only messages signed with these keys are accepted. They are not part of
            the fingerprint, and not compared. The default is no list.
        privacy: The plan of a federation in which agents hear private releases and nothing else:
            what an agent sends is a contribution to them. By default there is none.

    >>> from fedbo.space import Float
    >>> ours = Federation({"C": Float(1e-4, 10, log=True)}, features=50, seed=7)
    >>> ours
    Federation(['C'], maximize, features=50, kernel='se', seed=7, length_scale=0.3, ...)
    >>> str(ours.fingerprint)
    'b5848633-cdaca564-cd30b55a-e2588839'
    >>> ours.difference(Federation({"C": Float(1e-4, 100, log=True)}, features=50, seed=7))
    'space.parameters.C.high is 10.0 here and 100.0 there'
    >>> Federation({"b": Float(0, 1), "a": Float(0, 1)}).space.names
    ('a', 'b')
    """

    def __init__(
        self,
        space: Space | Mapping[str, Parameter],
        *,
        features: int = 100,
        kernel: KernelName = "se",
        seed: int = 0,
        length_scale: float | None = None,
        noise_variance: float = 0.1,
        kind: Kind = "compact",
        tips: bool = True,
        members: Mapping[str, str | bytes] | None = None,
        privacy: Plan | Mapping[str, Any] | None = None,
    ) -> None:
        _one_of("kernel", kernel, get_args(KernelName))
        _one_of("kind", kind, get_args(Kind))
        self.space = (space if isinstance(space, Space) else Space(space)).canonical()
        self.features = _whole("features", features, 1, MOST_FEATURES)
        self.kernel: KernelName = kernel
        self.seed = _whole("seed", seed, 0, 2**63 - 1)
        if length_scale is None:
            length_scale = round(LENGTH_SCALE * math.sqrt(self.space.dimensions), 6)
        self.length_scale = _positive("length_scale", length_scale, *_SCALE_LIMITS)
        self.noise_variance = _positive("noise_variance", noise_variance, *_NOISE_LIMITS)
        self.kind: Kind = kind
        if not isinstance(tips, bool):
            raise ValueError(f"tips is {tips!r}, expected true or false")
        self.tips = tips
        self.members = _members({} if members is None else members)
        self.privacy = None if privacy is None else Plan.from_table(privacy)
        if self.privacy is not None and self.members and self.privacy.by not in self.members:
            raise ValueError(
                f"{self.privacy.by!r} makes the releases, but is not among the members: list its "
                "key too, or nobody would believe them"
            )

    def _agreed(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _SETTINGS}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Federation) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        agreed = ", ".join(f"{name}={value!r}" for name, value in self._agreed().items())
        agreed += "" if self.privacy is None else f", privacy={self.privacy!r}"
        return f"Federation({[*self.space.names]}, {self.space.direction}, {agreed})"

    @property
    def sends(self) -> MessageKind:
        """What agents send: messages of ``kind``, or contributions to private releases."""
        return self.kind if self.privacy is None else "contribution"

    @property
    def is_compact(self) -> bool:
        """Whether messages describe the leading coordinates of weights, not all weights."""
        return self.kind == "compact"

    @property
    def sends_tips(self) -> bool:
        """Whether what agents send may name a tip."""
        return self.tips and self.sends == "compact"

    @cached_property
    def fingerprint(self) -> Fingerprint:
        """16 bytes that identify the agreement; other members have the same."""
        kind = self.kind if self.tips else f"{self.kind} without tips"
        return Fingerprint.from_parts(
            space=_space_part(self.space),
            features=[self.kernel, self.features, self.seed],
            kind=kind if self.privacy is None else [kind, self.privacy.table],
            scales=[self.length_scale, self.noise_variance],
        )

    @cached_property
    def sent_bytes(self) -> int:
        """How many bytes the numbers in a message take at most."""
        if self.sends == "compact":
            tip = Lattice(self.space).nbytes if self.tips else 0
            return BASIS_BYTES + 4 + packed_bytes(MOST_COORDINATES, MOST_CELLS) + tip
        if self.sends == "contribution":
            return 4 * COORDINATES + 8 + BASIS_BYTES
        M = self.features
        return 4 * M + (2 * M * (M + 1) + 8 if self.sends == "belief" else 0)

    @property
    def most_bytes(self) -> int:
        """How many bytes a message, withdrawal or release can have at most."""
        largest = self.sent_bytes if self.privacy is None else max(self.sent_bytes, RELEASE_BYTES)
        return largest + _BESIDE

    def read(self, data: bytes | bytearray | memoryview) -> Heard | Withdrawal:
        """Return what these bytes hold, if its size, form and header are those of this federation.

        Whatever comes from outside enters here: nothing is unpacked before its size is known. Its
        signature is not checked, and neither are its numbers: see `Shared.check`.

        Raises:
            MessageRefused: If it is too large, damaged, or of another federation.
        """
        if len(data) > (most := self.most_bytes):
            raise MessageRefused(f"it has {len(data):,} bytes, expected at most {most:,}")
        content = read(data)
        self.check(content)
        return content

    def check(self, content: Heard | Withdrawal) -> None:
        """Raise `MessageRefused`, with the reason, if the header does not fit the federation.

        The header is the fingerprint and the kind of a message, or the terms of a release.
        """
        fault = self.fingerprint.mismatch(content.fingerprint)
        if not fault and isinstance(content, Message) and content.kind != self.sends:
            fault = f"it is of kind {content.kind!r}, expected {self.sends!r}"
        elif not fault and isinstance(content, Release):
            fault = self._terms_fault(content)
        if fault:
            raise refusal(content, fault)

    def _terms_fault(self, release: Release) -> str | None:
        plan = self.privacy
        if plan is None:
            return "the federation has no privacy plan, so that nobody may publish releases"
        if release.sender != plan.by:
            return f"the federation names {plan.by!r} as the party that makes releases"
        if not 1 <= release.sequence <= plan.releases:
            return f"its plan has {plan.releases} releases"
        terms = release.epsilon, release.delta, release.releases
        if terms != (planned := (plan.epsilon, plan.delta, plan.releases)):
            return f"its ε, δ and number of releases are {terms}, expected {planned}"
        return noise_fault(plan, release)

    def difference(self, other: Federation) -> str | None:
        """Describe the first difference; return None if there is none."""
        return next(_differences(self._table(), other._table()), None)

    def _table(self) -> dict[str, Any]:
        """Return all that agents agree on, as plain data."""
        plan = {} if self.privacy is None else {"privacy": self.privacy.table}
        return {"space": file.space_table(self.space), **self._agreed(), **plan}

    def require_plan(self) -> Plan:
        """Return the privacy plan; raise a ValueError if there is none."""
        if self.privacy is None:
            raise ValueError(
                "the federation has no privacy plan: make it with privacy=Plan(epsilon=2.0, "
                "delta=1e-3), or with a [privacy] table in its file"
            )
        return self.privacy

    def require_same(self, other: Federation) -> None:
        """Raise `FederationMismatch` if the other federation differs from this one."""
        if difference := self.difference(other):
            raise FederationMismatch(f"the federations differ: {difference}")

    def to_toml(self) -> str:
        """Return the text of the TOML file."""
        keys = {name: key_text(key) for name, key in self.members.items()}
        last: dict[str, Any] = {"members": keys} if keys else {}
        if self.privacy is not None:
            last["privacy"] = self.privacy.table
        return file.dumps({"format": FORMAT, **self._agreed(), **last}, self.space)

    @classmethod
    def from_toml(cls, text: str) -> Federation:
        """Read the text of a TOML file; a setting that is missing has its default.

        Raises:
            ValueError: If something in it is wrong; the text says what.
        """
        try:
            tables = file.loads(text)
            _check_format(tables.pop("format", None))
            for key in tables:
                if key not in _KEYS:
                    raise ValueError(f"unknown key {key!r}, expected one of {', '.join(_KEYS)}")
            if tables.get("members") == {}:
                raise ValueError(
                    "[members] is empty: list the members' keys, or remove the section if messages "
                    "of anybody may be accepted"
                )
            return cls(file.read_space(tables.pop("space", {})), **tables)
        except ValueError as error:
            raise ValueError(_shortened(str(error))) from error

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the TOML file, completely or not at all."""
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
            return cls.from_toml(file.read(path))
        except FileNotFoundError:
            folder, name = os.path.split(os.path.abspath(path))
            raise FileNotFoundError(
                f"there is no federation file {name} in {folder}: get it from whoever made it, or "
                "make one with fedbo federation new"
            ) from None
        except ValueError as error:
            raise ValueError(f"{os.fspath(path)}: {error}") from error


def refusal(content: Heard | Withdrawal, fault: str) -> MessageRefused:
    """Return the error that names what is refused, and why."""
    return MessageRefused(f"{content.type} {content.sequence} of {content.sender!r}: {fault}")


def _differences(ours: Any, theirs: Any, name: str = "") -> Iterator[str]:
    """Say where two plain values differ, by the names that lead there."""
    if isinstance(ours, list | tuple) and isinstance(theirs, list | tuple):
        ours, theirs = dict(enumerate(ours)), dict(enumerate(theirs))
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in {**ours, **theirs}:
            path = f"{name}.{key}" if name else str(key)
            yield from _differences(ours.get(key), theirs.get(key), path)  # TOML has no null
    elif repr(ours) != repr(theirs):  # 1 is not True
        yield f"{name} is {_shortened(repr(ours))} here and {_shortened(repr(theirs))} there"


def _space_part(space: Space) -> list[object]:
    table = file.space_table(space)  # parameters as pairs, because their order counts
    points = [[point[name] for name in space.names] for point in table.get("points", [])]
    return [table["direction"], [*table["parameters"].items()], points]


def _one_of(what: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{what} is {value!r}, expected one of {', '.join(map(repr, choices))}")


def _whole(what: str, value: object, low: int, high: int) -> int:
    whole = number(value, int)
    if not low <= whole <= high:
        raise ValueError(f"{what} is {value!r}, expected an int from {low} to {high}")
    return int(whole)


def _positive(what: str, value: object, low: float, high: float) -> float:
    positive = number(value, float)
    if not low <= positive <= high:
        raise ValueError(f"{what} is {value!r}, expected a number from {low:g} to {high:g}")
    return positive


def _check_format(value: object) -> None:
    if value != FORMAT or isinstance(value, bool):
        fault = "format is missing" if value is None else f"format is {value!r}"
        raise ValueError(
            f"{fault}, expected format = {FORMAT}: write the file with this version of fedbo, "
            "and use the same version everywhere"
        )


def _members(table: object) -> dict[str, bytes]:
    if not isinstance(table, Mapping):
        raise ValueError(f"members is {table!r}, expected names and public keys")
    members: dict[str, bytes] = {}
    names: dict[bytes, str] = {}
    for name, key in table.items():
        try:
            check_member(name)
            members[name] = parse_key(key_text(key) if isinstance(key, bytes) else key)
        except ValueError as error:
            raise ValueError(f"member {name!r}: {error}") from None
        if (other := names.setdefault(members[name], name)) != name:
            raise ValueError(
                f"members {other!r} and {name!r} have the same key, expected one of each: whoever "
                "has it is one member, whose agents are called MEMBER/AGENT"
            )
    return members


def _shortened(text: str) -> str:
    half = _LONGEST // 2
    return text if len(text) <= _LONGEST else f"{text[:half]} … {text[-half:]}"
