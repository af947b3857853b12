"""What agents agree on: one file, one fingerprint, and differences that are named."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbo.federation import Federation, FederationMismatch
from fedbo.federation.shared import Shared
from fedbo.message.signed import Fingerprint, key_text
from fedbo.space import Categorical, Float, Int, Parameter, Space
from fedbo_paper.preset import paper_federation

PARAMETERS: dict[str, Parameter] = {
    "C": Float(1e-4, 10, log=True),
    "depth": Int(1, 8),
    "kernel": Categorical(["rbf", "linear", 3, True, 0.5]),
    "learning rate": Float(0, 1, step=0.05),
}


AGREED: dict[str, Any] = {"features": 20, "seed": 7, "length_scale": 0.3}


def federation(**changes: Any) -> Federation:
    return Federation(changes.pop("space", PARAMETERS), **AGREED | changes)


# Features


def test_length_scales_grow_with_distances_unless_given() -> None:
    spaces = ({f"x{i}": Float(0, 1) for i in range(D)} for D in (1, 4, 9))
    assert [Federation(space).length_scale for space in spaces] == [0.3, 0.6, 0.9]


# The file


def saved_and_loaded(ours: Federation, path: Path) -> Federation:
    ours.save(path)
    theirs = Federation.load(path)
    assert ours.difference(theirs) is None
    assert repr(theirs) == repr(ours) and repr(theirs.space) == repr(ours.space)
    assert theirs.fingerprint == ours.fingerprint
    return theirs


@pytest.mark.parametrize(
    "ours",
    [
        federation(),
        paper_federation(PARAMETERS),
        federation(kind="belief", kernel="matern52", noise_variance=1 / 3),
        federation(length_scale=1 / 3, space=Space(PARAMETERS, direction="minimize")),
        federation(
            space=Space(
                {"a b": Float(0, 1), "é": Categorical(["x", '"\\\n\t\x00\x7f\u2028😀'])},
                points=[{"a b": 1 / 3, "é": "x"}, {"a b": 1, "é": '"\\\n\t\x00\x7f\u2028😀'}],
            )
        ),
    ],
)
def test_what_was_saved_is_loaded(ours: Federation, tmp_path: Path) -> None:
    theirs = saved_and_loaded(ours, tmp_path / "federation.toml")
    assert theirs == ours and hash(theirs) == hash(ours)
    assert theirs.space.names == ours.space.names


@settings(deadline=None)
@given(
    names=st.lists(st.text(min_size=1), min_size=1, max_size=5, unique=True),
    low=st.floats(-1e299, 1e299),
    choices=st.lists(
        st.one_of(
            st.none(),
            st.booleans(),
            st.text(),
            st.integers(-(2**63), 2**63 - 1),
            st.floats(-1e300, 1e300),
        ),
        min_size=2,
        unique=True,
    ),
    noise=st.floats(1e-10, 1e6),
)
def test_any_name_and_number_is_saved_exactly(
    names: list[str], low: float, choices: list[Any], noise: float, tmp_path_factory: Any
) -> None:
    parameters: dict[str, Parameter] = {name: Float(low, 1e300) for name in names}
    parameters[names[-1]] = Categorical(choices)
    ours = Federation(parameters, noise_variance=noise)
    saved_and_loaded(ours, tmp_path_factory.getbasetemp() / "any.toml")


def test_an_empty_list_of_members_does_not_mean_everybody() -> None:
    text = federation().to_toml() + "\n[members]\n"
    with pytest.raises(ValueError, match=r"\[members\] is empty"):
        Federation.from_toml(text)


CHOICES = '[space.parameters.C]\ntype = "categorical"\nchoices = ["a", {}]\n'
SHORT = '[space.parameters.C]\ntype = "float"\nlow = 0\nhigh = 1\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("colour = 3\n" + SHORT, "unknown key 'colour', expected one of format, features, kernel"),
        ("format = 2\ncolour = 3\n[space]\nx = 3", "format is 2, expected format = 1"),
        ("format = true\n" + SHORT, "format is True, expected format = 1"),
        ("members = 3\n" + SHORT, "members is 3, expected names and public keys"),
        (SHORT + "[members]\na = 'ssh'\n", "member 'a': the key is 'ssh', expected 'ed25519:'"),
        (CHOICES.format("{ none = false }"), r"parameter 'C': Expected .*, got `object`"),
        (CHOICES.format("nan"), "parameter 'C': choice nan is not a str in Unicode"),
        (SHORT + "[[space.points]]\nC = [1]\n", r"points\[0\]: parameter 'C' is \[1\]"),
        (SHORT + "[space]\ncolour = 3\n", r"\[space\]: .*unknown field `colour`"),
        (SHORT.replace("high = 1", "high = -1"), "parameter 'C': low is 0.0, high is -1.0"),
        ("this is not TOML", "federation.toml: "),
    ],
)
def test_what_is_wrong_in_a_file_is_named(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "federation.toml"
    path.write_text(text if text.startswith("format") else f"format = 1\n{text}")
    with pytest.raises(ValueError, match=words) as caught:
        Federation.load(path)
    assert str(path) in str(caught.value)


def test_a_file_that_does_not_exist_is_named(tmp_path: Path) -> None:
    said = f"there is no federation file federaton.toml in {tmp_path}: .*fedbo federation new"
    with pytest.raises(FileNotFoundError, match=said):
        Federation.load(tmp_path / "federaton.toml")


def points_of(n: int) -> str:
    text = "".join(CHOICES.replace(".C]", f".{name}]") for name in "ab")
    choices = ", ".join(map(str, range(500)))
    rows = ",".join(f"{{a={i % 500},b={i // 500}}}" for i in range(n))
    return f"{text.format(choices, choices)}[space]\npoints = [{rows}]\n".replace('"a", ', "")


TOO_MUCH: dict[str, tuple[str, str]] = {
    "features": ("features = 20000\n" + SHORT, "features is 20000, .* 1 to 5000"),
    "int": (f"seed = 0x{'f' * 10**5}\n" + SHORT, "Exceeds the limit"),
    "digits": (f"seed = {'1' * 10**5}\n" + SHORT, "Exceeds the limit"),
    "choices": (CHOICES.format(", ".join(map(str, range(10**5)))), "there are 100001 choices"),
    "text": (SHORT.replace("float", "x" * 10**6), "parameter 'C': Invalid value 'xxx"),
    "points": (points_of(10_001), "there are 10001 points of 1000 dimensions each"),
    "lists": (f"seed = {'[' * 10**5}", "nested too deeply"),
    "low": (SHORT.replace("low = 0", f"low = 0x{'f' * 10**5}"), "parameter 'C'"),
    "key": (f"{'a.' * 10**5}a = 1\n" + SHORT, "a key has more than 32 parts between dots"),
    "quoted": ('"\\"" . ' * 10**5 + "a = 1", "a key has more than 32 parts between dots"),
    "long quotes": ('x = """' + '\\"' * 10**6, "Unterminated string"),
}


@pytest.mark.parametrize("what", TOO_MUCH)
def test_too_much_in_a_file_is_refused_soon_and_in_few_words(what: str, tmp_path: Path) -> None:
    text, words = TOO_MUCH[what]
    path = tmp_path / "federation.toml"
    path.write_text(f"format = 1\n{text}")
    began = time.process_time()
    with pytest.raises(ValueError, match=words) as caught:
        Federation.load(path)
    assert time.process_time() - began < 5.0
    assert len(str(caught.value)) < 1000 + len(str(path))


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "federation.toml"
    with path.open("wb") as file:
        file.truncate(2**34)
    with pytest.raises(ValueError, match=r"federation.toml: it has .* bytes, expected at most"):
        Federation.load(path)


# Canonical order


REVERSED: dict[str, Parameter] = dict(reversed(PARAMETERS.items())) | {
    "kernel": Categorical([0.5, True, 3, "linear", "rbf"])
}


def test_the_order_of_parameters_and_choices_makes_no_difference() -> None:
    ours, theirs = federation(), federation(space=REVERSED)
    assert ours.difference(theirs) is None and ours == theirs and hash(ours) == hash(theirs)
    assert ours.fingerprint == theirs.fingerprint
    assert ours.to_toml() == theirs.to_toml()
    assert ours.space.names == ("C", "depth", "kernel", "learning rate")
    assert ours.space.parameters["kernel"] == Categorical([True, 0.5, 3, "linear", "rbf"])
    params = {"learning rate": 0.5, "depth": 3, "C": 1.0, "kernel": 3}
    x, z = ours.space.encode(params), theirs.space.encode(params)
    assert np.array_equal(Shared.of(ours).phi(x[None]), Shared.of(theirs).phi(z[None]))


# The choice None


def test_none_and_its_name_are_two_choices(tmp_path: Path) -> None:
    space = Space(
        {"depth": Categorical(["None", None, 3])}, points=[{"depth": None}, {"depth": "None"}]
    )
    ours = federation(space=space)
    text = ours.to_toml()
    assert 'choices = [\n    { none = true },\n    3,\n    "None",\n]\n' in text
    assert 'points = [\n    { depth = { none = true } },\n    { depth = "None" },\n]\n' in text
    theirs = saved_and_loaded(ours, tmp_path / "federation.toml")
    assert theirs.space.listed == [{"depth": None}, {"depth": "None"}]
    named = federation(space={"depth": Categorical(["None", 3])})
    real = federation(space={"depth": Categorical([None, 3])})
    assert named.fingerprint != real.fingerprint
    assert "choices.0 is 3 here and {'none': True} there" in str(named.difference(real))


# Members


KEYS = {"site-a": key_text(bytes(range(32))), "site b é": key_text(bytes([7]) * 32)}


def test_members_are_saved_but_not_compared(tmp_path: Path) -> None:
    ours = federation(members=KEYS)
    assert ours.members == {"site-a": bytes(range(32)), "site b é": bytes([7]) * 32}
    assert f'[members]\nsite-a = "{KEYS["site-a"]}"\n' in ours.to_toml()
    ours.save(tmp_path / "federation.toml")
    assert Federation.load(tmp_path / "federation.toml").members == ours.members
    plain = federation()
    assert plain.members == {} and "members" not in plain.to_toml()
    assert ours == plain and ours.fingerprint == plain.fingerprint and hash(ours) == hash(plain)
    assert ours.difference(plain) is None
    assert federation(members={"a": bytes([7]) * 32}).members == {"a": bytes([7]) * 32}


# Settings


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"features": 5001}, "features is 5001, expected an int from 1 to 5000"),
        ({"kernel": "rbf"}, "kernel is 'rbf', expected one of 'se', 'matern52'"),
        ({"length_scale": "0.3"}, "length_scale is '0.3'"),
        ({"noise_variance": 1e300}, "noise_variance is 1e.300, expected a number from 1e-10"),
        ({"noise_variance": -0.1}, "noise_variance is -0.1, expected a number from 1e-10 to"),
        ({"space": {}}, "parameters is {}"),
        ({"members": {"": KEYS["site-a"]}}, "member '': the name is '', expected 1 to 64 bytes"),
        ({"members": {"a/b": KEYS["site-a"]}}, "member 'a/b': .* without '/'"),
        ({"members": dict.fromkeys("ab", KEYS["site-a"])}, "'a' and 'b' have the same key"),
        ({"members": {"a": bytes(31)}}, "member 'a': the key has 31 bytes, expected 32"),
    ],
)
def test_wrong_settings_are_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        federation(**change)


DIFFERENT: list[tuple[dict[str, Any], str, str]] = [
    (
        {"space": PARAMETERS | {"C": Float(1e-4, 100, log=True)}},
        "space.parameters.C.high is 10.0 here and 100.0 there",
        "space",
    ),
    (
        {"space": Space(PARAMETERS, direction="minimize")},
        "space.direction is 'maximize' here and 'minimize' there",
        "space",
    ),
    (
        {"space": PARAMETERS | {"kernel": Categorical(["rbf", "linear", 3, False, 0.5])}},
        "space.parameters.kernel.choices.0 is True here and False there",
        "space",
    ),
    ({"features": 21}, "features is 20 here and 21 there", "features"),
    ({"kernel": "matern52"}, "kernel is 'se' here and 'matern52' there", "features"),
    ({"seed": 8}, "seed is 7 here and 8 there", "features"),
    ({"kind": "belief"}, "kind is 'compact' here and 'belief' there", "kind"),
    ({"length_scale": 0.2}, "length_scale is 0.3 here and 0.2 there", "scales"),
    ({"noise_variance": 0.2}, "noise_variance is 0.1 here and 0.2 there", "scales"),
]


@pytest.mark.parametrize(("change", "words", "part"), DIFFERENT)
def test_the_first_difference_is_named(change: dict[str, Any], words: str, part: str) -> None:
    ours, theirs = federation(), federation(**change)
    assert words in str(ours.difference(theirs))
    assert ours != theirs
    assert f"foreign {part}" in str(ours.fingerprint.mismatch(theirs.fingerprint))
    with pytest.raises(FederationMismatch, match="the federations differ: "):
        ours.require_same(theirs)


def test_fingerprints_never_change() -> None:
    depth: dict[str, Parameter] = {"depth": Categorical([3, None])}
    for kind, ours, other in (
        ("weights", "e455c4d0-38a3e62c-897d06ea-8a330239", "1c2ea397-e6f04a94-f86ccb55-b3e60239"),
        ("compact", "62fa0a26-7fb405bb-8cc3324e-8a338839", "f39cfe76-d1d83877-7ad7029a-b3e68839"),
    ):
        assert str(federation(kind=kind).fingerprint) == ours
        assert str(Federation(depth, kind=kind).fingerprint) == other


def test_what_only_a_part_of_a_fingerprint_tells_apart_is_another_federation() -> None:
    ours = federation().fingerprint
    twin = Fingerprint(bytes([ours[0] ^ 1]) + ours[1:])  # as if a part's hash had been found again
    assert "foreign federation" in str(ours.mismatch(twin))


# Cells


CELLED: dict[str, Any] = {
    "plane": {"a": Float(0, 1), "b": Float(1e-3, 1, log=True)},
    "mixed": PARAMETERS,
    "choices": {"c": Categorical(["x", "y", "z"])},
    "ints": {"n": Int(1, 9)},
    "few": Space({"a": Float(0, 1)}, points=[{"a": i / 4} for i in range(5)]),
    "many": Space({"a": Float(0, 1)}, points=[{"a": i / 199} for i in range(200)]),
    "table": Space(
        {"a": Float(0, 1), "b": Float(0, 1)},
        points=[{"a": i / 9, "b": j / 9} for i in range(10) for j in range(10)],
    ),
    "line": {"a": Float(0, 1)},
    "cube": {name: Float(0, 1) for name in "abcdef"},
    "levels": {"m": Int(1, 3), "n": Int(1, 5)},
    "one": Space({"a": Float(0, 1)}, points=[{"a": 0.3}]),
}


@pytest.mark.parametrize(
    ("name", "n"),
    [
        ("line", 8),
        ("plane", 64),
        ("cube", 64),
        ("choices", 1),  # of 3 points
        ("ints", 2),  # of 9
        ("levels", 2),  # of 15
        ("few", 1),  # of 5
        ("table", 15),  # of 100
        ("many", 8),  # of 200 on a line
        ("one", 1),
    ],
)
def test_how_many_cells_there_are(name: str, n: int) -> None:
    """64 at most, and 8 in one dimension; fewer where the space has few points."""
    ours = Federation(CELLED[name])
    cells = Shared(ours).cells
    assert len(cells) == len(np.unique(cells, axis=0)) == n
    np.testing.assert_array_equal(ours.space.snap(cells), cells)  # they are allowed
    np.testing.assert_array_equal(Shared(Federation(CELLED[name])).cells, cells)


def test_a_point_far_from_all_others_shares_its_cell() -> None:
    """Lists with outliers, wherever in the list they are."""
    rng = np.random.default_rng(0)
    for size in (5, 12, 40, 300, 2000):
        X = 0.2 * rng.random((size, 2))
        X[rng.integers(size, size=2)] = [[1.0, 1.0], [0.9, 0.0]]
        listed = [{"a": float(a), "b": float(b)} for a, b in X]
        space = Space({"a": Float(0, 1), "b": Float(0, 1)}, points=listed)
        inside = np.bincount(Shared.of(Federation(space)).nearest_cells(space.points))
        assert inside[inside > 0].min() >= 4


def test_cells_are_the_same_everywhere() -> None:
    plane = Federation(CELLED["plane"])
    assert Shared.of(plane).cells[:2].tolist() == [[0.5, 0.5], [0.254877666, 0.069840291]]
    corners = [[0, 0], [1, 0], [0, 1], [1, 1], [0.5, 0.5], [0.3, 0.1]]
    assert [Shared.of(plane).cell(np.array(x)) for x in corners] == [22, 43, 6, 27, 0, 1]
    other = Federation(CELLED["plane"], features=7, seed=3, length_scale=2.0)
    assert np.array_equal(Shared.of(other).cells, Shared.of(plane).cells)
