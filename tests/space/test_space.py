"""Parameters are encoded on the unit cube and restored exactly; errors name what is wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from scipy.stats.qmc import Sobol

from fedbo.space import Categorical, Float, Int, Parameter, Part, Space
from fedbo.space import space as space_module

UNIT = st.floats(0.0, 1.0)
BOUND = st.one_of(
    st.floats(-1e300, 1e300),
    st.floats(-10, 10),
    st.sampled_from([-1.0, 0.0, 1e-20, 1e9, 1e9 + 1, 1e-300, 1e300, -1e300, 5e-324, 1 / 3, math.e]),
)


@st.composite
def linear(draw: st.DrawFn) -> Float:
    low, high = sorted((draw(BOUND), draw(BOUND)))
    assume(low < high)
    return Float(low, high)


@st.composite
def narrow(draw: st.DrawFn) -> Float:
    """A range of a few floats up to a few thousandths, far from zero."""
    low = draw(st.floats(1e-3, 1e15)) * draw(st.sampled_from([-1.0, 1.0]))
    high = low + abs(low) * draw(st.floats(1e-15, 1e-2))
    assume(low < high)
    return Float(low, high)


@st.composite
def logarithmic(draw: st.DrawFn) -> Float:
    ends = st.one_of(
        st.floats(-300, 300).map(lambda exponent: 10.0**exponent),
        st.sampled_from([1e-300, 1e300, 1.0, 1 + 1e-10]),
    )
    low, high = sorted((draw(ends), draw(ends)))
    assume(low >= 1e-300 and high <= 1e300 and f"{low:.11e}" != f"{high:.11e}")
    return Float(low, high, log=True)


@st.composite
def stepped(draw: st.DrawFn) -> Float:
    """Ends and steps as a person types them."""
    exponent = draw(st.integers(-30, 30))
    low, step, levels = draw(st.integers(-(10**6), 10**6)), draw(st.integers(1, 999)), draw(LEVELS)
    ends = [float(f"{units}e{exponent}") for units in (low, low + step * (levels - 1))]
    return Float(ends[0], ends[1], step=float(f"{step}e{exponent}"))


@st.composite
def whole(draw: st.DrawFn) -> Int:
    low = draw(st.one_of(st.integers(-100, 100), st.integers(-(2**62), 2**62)))
    step = draw(st.integers(1, 10**6))
    return Int(low, low + step * (draw(LEVELS) - 1), step=step)


LEVELS = st.one_of(st.integers(2, 20), st.integers(2, 10**9))
LOG_INT = (
    st.tuples(st.integers(1, 10**12), st.integers(1, 10**12))
    .filter(lambda ends: ends[0] != ends[1])
    .map(lambda ends: Int(min(ends), max(ends), log=True))
)
CHOICE = st.one_of(
    st.none(),
    st.text(),
    st.integers(-(2**63), 2**63 - 1),
    st.booleans(),
    st.floats(-1e300, 1e300),
)
CATEGORICAL = st.lists(CHOICE, min_size=2, max_size=6, unique=True).map(Categorical)
CONTINUOUS = st.one_of(linear(), narrow(), logarithmic())
GRID = st.one_of(stepped(), whole(), LOG_INT)
PARAMETER: st.SearchStrategy[Parameter] = st.one_of(CONTINUOUS, GRID, CATEGORICAL)


def there_and_back(parameter: Parameter, value: Any) -> Any:
    space = Space({"a": parameter})
    x = space.encode({"a": value})
    back = space.decode(x)
    assert space.encode(back).tobytes() == x.tobytes()
    return back["a"]


# Round trips


@given(PARAMETER, st.data())
def test_what_was_decoded_comes_back_exactly(parameter: Parameter, data: st.DataObject) -> None:
    space = Space({"a": parameter})
    x = np.array([data.draw(UNIT) for _ in range(space.dimensions)])
    value = space.decode(x)["a"]
    assert repr(there_and_back(parameter, value)) == repr(value)
    assert type(value) in (int, float, str, bool, type(None))


@given(CONTINUOUS, UNIT)
@example(Float(-1, 1e-20), 1 - 1e-16)
@example(Float(1e9, 1e9 + 1), 0.3)
@example(Float(1e-300, 1e300, log=True), 1 - 1e-16)
@example(Float(-1e300, 1e300), 1e-16)
@example(Float(0, 5e-324), 0.5)
def test_any_number_of_the_range_settles_inside_it(parameter: Float, u: float) -> None:
    value = min(max(parameter.low * (1 - u) + parameter.high * u, parameter.low), parameter.high)
    settled = there_and_back(parameter, value)
    assert parameter.low <= settled <= parameter.high
    size = value if parameter.log else parameter.high - parameter.low
    assert abs(settled - value) <= 1e-11 * size
    assert there_and_back(parameter, settled) == settled
    assert math.copysign(1, settled) == 1 or settled != 0


@given(CONTINUOUS)
def test_ends_are_reached_exactly(parameter: Float) -> None:
    space = Space({"a": parameter})
    for x, end in ((0.0, parameter.low), (1.0, parameter.high)):
        assert space.encode({"a": end}) == x
        assert space.decode([x]) == {"a": end}
        assert space.decode([x * 3 - 1]) == {"a": end}


@given(st.integers(-5, 5), st.integers(0, 10**12))
def test_typed_numbers_come_back_on_a_linear_scale(exponent: int, digits: int) -> None:
    typed = float(f"{digits}e{exponent - 12}")
    assert there_and_back(Float(0, float(f"1e{exponent}")), typed) == typed
    around = Float(-float(f"3e{exponent}"), float(f"4e{exponent}"))
    assert there_and_back(around, -typed) == -typed


@given(stepped(), UNIT)
def test_steps_are_the_decimals_that_are_meant(parameter: Float, u: float) -> None:
    assert parameter.step is not None
    low, high, step = (Decimal(repr(v)) for v in (parameter.low, parameter.high, parameter.step))
    k = int(u * int((high - low) / step))
    assert there_and_back(parameter, float(low + k * step)) == float(low + k * step)


# The cube


def mixed(**options: Any) -> Space:
    return Space(
        {
            "C": Float(1e-4, 10, log=True),
            "depth": Int(1, 8),
            "width": Int(1, 1000, log=True),
            "rate": Float(0, 1, step=0.05),
            "loss": Categorical(["l1", "l2"]),
            "kernel": Categorical(["rbf", "linear", "poly"]),
        },
        **options,
    )


GOOD: dict[str, Any] = {
    "C": 1.0,
    "depth": 3,
    "width": 8,
    "rate": 0.3,
    "loss": "l2",
    "kernel": "poly",
}


def test_layout() -> None:
    space = mixed(direction="minimize")
    assert space.names == ("C", "depth", "width", "rate", "loss", "kernel")
    assert (space.dimensions, space.sign, mixed().sign, space.points) == (8, -1, 1, None)
    assert space.free.tolist() == [True] + [False] * 7
    x = space.encode(GOOD)
    width = math.log(8 / 0.5) / math.log(1000.5 / 0.5)
    assert x == pytest.approx([0.8, 2.5 / 8, width, 6.5 / 21, 1, 0, 0, 1], abs=1e-15)
    assert x.dtype == np.float64


@given(GRID, st.lists(UNIT, min_size=1, max_size=50))
def test_snap_equals_encode_to_the_last_bit(parameter: Parameter, places: list[float]) -> None:
    space = Space({"a": parameter})
    expected = [space.encode(space.decode([x])) for x in places]
    assert np.array_equal(space.snap(np.array(places)[:, None]), expected)


def test_sample_is_uniform_over_what_is_allowed() -> None:
    space = mixed()
    X = space.sample(np.random.default_rng(0), 6000)
    assert np.array_equal(space.snap(X), X)
    assert X.shape == (6000, 8)
    for column, levels in ((1, 8), (3, 21), (4, 2)):
        _, counts = np.unique(X[:, column], return_counts=True)
        assert len(counts) == levels
        assert abs(counts - 6000 / levels).max() < 5 * math.sqrt(6000 / levels)
    assert abs(X[:, 5:].sum(axis=0) - 2000).max() < 5 * math.sqrt(2000)
    assert X[:, 5:].sum(axis=1).tolist() == [1.0] * 6000
    assert np.array_equal(X, space.sample(np.random.default_rng(0), 6000))


# Listed points

POINTS: list[dict[str, Any]] = [{"a": 0.1, "b": "x"}, {"a": 1 / 3, "b": "y"}, {"a": 1, "b": "x"}]


def listed() -> Space:
    return Space({"a": Float(0, 1), "b": Categorical(["x", "y"])}, points=POINTS)


def test_listed_points_come_back_as_listed() -> None:
    space = listed()
    assert space.points is not None
    assert space.points.shape == (3, 2) and not space.points.flags.writeable
    for row, point in zip(space.points, POINTS, strict=True):
        assert space.decode(row) == point
        assert np.array_equal(space.encode(point), row)
    assert space.decode([0.4, 0.9]) == {"a": 1 / 3, "b": "y"}
    space.decode(space.points[0])["a"] = 7.0
    assert space.decode(space.points[0]) == POINTS[0]


def test_snap_and_sample_give_listed_points_only() -> None:
    space = listed()
    assert space.points is not None
    X = np.random.default_rng(0).random((100, 2)).astype(np.float32)
    rows = {tuple(row) for row in space.points.astype(np.float32).tolist()}
    assert {tuple(row) for row in space.snap(X).tolist()} == rows
    assert space.snap(X).dtype == np.float32
    sample = space.sample(np.random.default_rng(0), 100)
    assert {tuple(row) for row in sample.tolist()} == {tuple(r) for r in space.points.tolist()}
    sample[0] = 0.0


def test_nearest_point_is_the_same_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    points = [{"a": float(a), "b": float(b)} for a, b in rng.random((37, 2))]
    space = Space({"a": Float(0, 1), "b": Float(0, 1)}, points=points)
    assert space.points is not None
    X = rng.random((101, 2))
    expected = space.points[((X[:, None] - space.points) ** 2).sum(axis=2).argmin(axis=1)]
    for chunk in (1, 37, 200, 2**18):
        monkeypatch.setattr(space_module, "_CHUNK", chunk)
        assert np.array_equal(space.snap(X), expected)
    assert np.array_equal(space.snap(space.points), space.points)


# Initial designs


def design(domain: Space | Part, n: int, seed: int = 0) -> np.ndarray:
    return np.array([domain.design_point(i, np.random.default_rng(seed)) for i in range(n)])


def test_a_design_is_a_scrambled_sobol_sequence() -> None:
    space = Space({"a": Float(0, 1), "b": Float(1, 9, log=True)})
    sequence = Sobol(2, rng=np.random.default_rng(3)).random_base2(4)
    assert np.array_equal(design(space, 16, seed=3), sequence)


# Points all over the space


def test_a_cover_is_the_same_everywhere() -> None:
    plane = Space({"a": Float(0, 1), "b": Float(1e-3, 1, log=True)})
    assert plane.cover(4).tolist() == [
        [0.5, 0.5],
        [0.254877666, 0.069840291],
        [0.009755332, 0.639680582],
        [0.764632999, 0.209520873],
    ]
    twenty = Space({f"x{i}": Float(0, 1) for i in range(20)}).cover(64)
    assert twenty[-1, :4].tolist() == [0.405025704, 0.379716763, 0.421756554, 0.528905493]
    many = Space({"a": Float(0, 1)}, points=[{"a": i / 99} for i in range(100)])
    assert (99 * many.cover(5)).round(9).tolist() == [[3], [11], [13], [20], [92]]


def test_a_cover_fills_the_space() -> None:
    """No part of the plane is far from 64 points; each number takes all of its range."""
    X = Space({"a": Float(0, 1), "b": Float(0, 1)}).cover(64)
    grid = np.stack(np.meshgrid(*[np.linspace(0, 1, 51)] * 2), axis=-1).reshape(-1, 1, 2)
    assert np.sqrt(((grid - X) ** 2).sum(axis=2)).min(axis=1).max() < 0.2
    for D, least, most in ((1, 127, 129), (6, 100, 140), (20, 50, 180)):
        X = Space({f"x{i}": Float(0, 1) for i in range(D)}).cover(1024)
        parts = np.array([np.histogram(column, 8, (0, 1))[0] for column in X.T])
        assert least <= parts.min() and parts.max() <= most  # of 128 on average


def test_a_part_offers_what_its_space_does() -> None:
    space = Space({"a": Float(0, 1), "n": Int(1, 8), "b": Float(1, 100, log=True)})
    part = Part(space, {"a": Float(0.2, 0.4), "n": Int(3, 5)})
    low, high = part.box
    samples = part.sample(np.random.default_rng(0), 200)
    for X in (design(part, 16), samples, part.snap(np.random.default_rng(1).random((50, 3)))):
        assert np.array_equal(np.clip(X, low, high), X)
        assert np.array_equal(part.snap(X), X)
        params = [space.decode(x) for x in X]
        assert {p["n"] for p in params} <= {3, 4, 5}
    assert {space.decode(x)["n"] for x in samples} == {3, 4, 5}


# Errors


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: Float(1, 1), "low is 1.0, high is 1.0 and step is None, expected low < high"),
        (lambda: Float(0, 2e300), "high is 2e[+]300, .* at most 1e300"),
        (lambda: Float(0, 1, log=True), "low is 0.0, .* more than 0 on a log scale"),
        (lambda: Float(1, 2, log=True, step=0.5), "log is True and step is 0.5"),
        (lambda: Float(1, 1 + 1e-14, log=True), "equal in the 12 digits .*; use log=False"),
        (lambda: Float(0, 1, step=0.3), "largest they reach is 0.9"),
        (lambda: Int(0, 10**13), "too fine"),
        (lambda: Categorical([1, True]), "no two of them equal"),
        (lambda: Categorical([1, 1j]), "choice 1j is not a str in Unicode, .* or None"),  # type: ignore[list-item]
        (lambda: Categorical([2**70, 1]), f"choice {2**70} is not a str"),
        (lambda: Categorical(["a", "\ud800"]), r"choice '\\ud800' is not a str in Unicode"),
        (lambda: Categorical(range(10**7)), "there are 10000000 choices, expected at most 1000"),
        (lambda: Space({}), "parameters is {}, expected"),
        (lambda: Space({"\udfff": Int(0, 1)}), r"parameter name is '\\udfff', expected text"),
        (
            lambda: Space({name: Categorical(range(600)) for name in "abc"}),
            "with parameter 'b' the cube has 1200 dimensions",
        ),
        (
            lambda: Space(
                {name: Categorical(range(500)) for name in "ab"},
                points=[{"a": i, "b": j} for i in range(21) for j in range(500)],
            ),
            "there are 10500 points of 1000 dimensions each, expected at most 10000 such points",
        ),
        (
            lambda: Space({"a": Float(0, 1)}, points=[{"a": 0.0}, {"a": 0.5}, {"a": 0}]),
            r"points\[2\] is .*, the same as points\[0\]",
        ),
    ],
)
def test_what_cannot_be_built_is_named(build: Callable[[], object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        build()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"C": 11.0}, "parameter 'C' is 11.0, expected a number from 0.0001 to 10.0"),
        ({"C": math.nan}, "parameter 'C' is nan, expected a number from"),
        ({"C": True}, "parameter 'C' is True, expected"),
        ({"depth": 3.0}, "parameter 'depth' is 3.0, expected an int"),
        ({"depth": 10**400}, "parameter 'depth' is 1000"),
        ({"rate": 0.33}, "parameter 'rate' is 0.33, expected a number: 0.0, 0.05, ... 1.0"),
        ({"loss": ["l1"]}, "parameter 'loss' is .*, expected one of"),
        ({"colour": "red"}, r"missing \[\], unknown \['colour'\]"),
    ],
)
def test_wrong_values_are_named(change: Mapping[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        mixed().encode({**GOOD, **change})


# Canonical order


@given(st.lists(CHOICE, min_size=2, max_size=8, unique=True), st.randoms())
def test_the_canonical_order_does_not_depend_on_the_given_one(
    choices: list[Any], random: Any
) -> None:
    shuffled = Categorical(random.sample(choices, len(choices)))
    ours = Space({"a": Float(0, 1), "b": Categorical(choices)}).canonical()
    theirs = Space({"b": shuffled, "a": Float(0, 1)}).canonical()
    assert repr(ours) == repr(theirs) and ours.canonical() is ours
