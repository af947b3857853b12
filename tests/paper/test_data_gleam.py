"""GLEAM: made files of the real layout, litter and strays included, against loops and scipy."""

from __future__ import annotations

import io
import math
import tarfile
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from fedbo.errors import FileRefused
from fedbo_paper.data import gleam

SENSORS = {  # as an archive may spell them, in the order of the channels
    "Gyroscope": 3,
    "Accelerometer": 3,
    "Magnetic Field": 3,
    "Rotation Vector": 3,
    "Linear Acceleration": 3,
    "Gravity": 3,
    "Light": 1,
}
START = 1_391_712_321_123
WINDOW = 3.0  # seconds; not the default, so that it is seen to count
MEAL = START + 20_400, START + 41_000

Reading = tuple[int, str, list[float]]


@pytest.fixture(autouse=True)
def short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gleam, "WINDOW", WINDOW)


def recording(seed: int, seconds: float = 60.0) -> list[Reading]:
    """Readings in the order of time: a gap in one sensor, and light that reports changes only."""
    rng = np.random.default_rng(seed)
    readings: list[Reading] = []
    for sensor, values in SENSORS.items():
        gap = 2000 if sensor == "Light" else 400
        times = np.cumsum(rng.integers(200, gap, int(seconds * 1e3 / 200)))
        times = times[times < seconds * 1e3]
        if sensor == "Gravity":
            times = times[(times < 25_000) | (times > 30_500)]
        if sensor == "Light":
            times = times[(times > 4_000) & ((times < 12_000) | (times > 21_000))]
        offset = 9.81 if sensor == "Gravity" else rng.normal(scale=50)
        for at in times:
            noise = np.zeros(values) if sensor == "Gravity" else rng.standard_t(4, values)
            readings.append((START + int(at), sensor, [round(float(v), 6) for v in offset + noise]))
    return sorted(readings)


def oracle(readings: list[Reading], meals: list[tuple[int, int]]) -> tuple[np.ndarray, list[int]]:
    """Features and labels, one window and one channel at a time."""
    length = WINDOW * 1e3
    start = min(at for at, _, _ in readings)
    rows, labels = [], []
    for k in range(math.ceil((max(at for at, _, _ in readings) - start) / length) + 1):
        low, high = start + k * length, start + (k + 1) * length
        moments = []
        for sensor, channels in SENSORS.items():
            inside = [v for at, name, v in readings if name == sensor and low <= at < high]
            if sensor == "Light" and not inside:
                inside = [v for at, name, v in readings if name == sensor and at < low][-1:]
            if len(inside) < (1 if sensor == "Light" else 4):
                break
            for channel in range(channels):
                values = np.array([v[channel] for v in inside])
                constant = np.ptp(values) == 0
                kurtosis = 0.0 if constant else float(stats.kurtosis(values))
                moments.append((values.mean(), 0.0 if constant else values.var(), kurtosis))
        else:
            rows.append(np.array(moments).T.ravel())
            middle = (low + high) / 2
            labels.append(int(any(begin <= middle < end for begin, end in meals)))
    return np.array(rows), labels


def sensor_csv(readings: list[Reading]) -> str:
    lines = ["Unix Time,Sensor,Value1,Value2,Value3"]
    for at, sensor, values in readings:
        lines.append(",".join([str(at), sensor, *map(repr, values), *[""] * (3 - len(values))]))
    return "\n".join(lines) + "\n"


def annotation_csv(meal: tuple[int, int] = MEAL) -> str:
    rows = [(START, "walk"), (START + 9_000, "walk"), (meal[0], "eat"), (meal[1], "eat")]
    rows += [(meal[1] + 500, "w"), (meal[1] + 5_000, "drink")]
    return "unix time,Activity\n" + "".join(f"{at},{activity}\n" for at, activity in rows)


def members(person: str, readings: list[Reading], annotation: str) -> dict[str, bytes]:
    """One person's folder, with everything that is to be passed over."""
    return {
        f"GLEAM/{person}/notes.txt": b"left handed",
        f"GLEAM/{person}/IMG_{person}.jpg": b"\xff\xd8\xff\xe0 Unix Time,Sensor",
        f"GLEAM/{person}/.DS_Store": b"\0\0\0\1Bud1",
        f"GLEAM/{person}/._sensorData.csv": b"\0\5\x16\7 Mac OS X",
        f"GLEAM/{person}/food.csv": b"item,amount\nsoup,1\n",
        f"GLEAM/{person}/empty.csv": b"",
        f"GLEAM/{person}/b.csv": sensor_csv(readings).encode(),
        f"GLEAM/{person}/a.CSV": annotation.encode(),
        f"__MACOSX/GLEAM/{person}/b.csv": sensor_csv(readings[:5]).encode(),
    }


def everyone(people: int = 38) -> tuple[dict[str, bytes], list[list[Reading]]]:
    """A whole archive's members, and the readings of each person."""
    files = {
        "GLEAM/Demographics_Glass_data.csv": b"ID,Age\n1000,31\n",
        "GLEAM/README_GLEAM.pdf": b"%PDF",
        "GLEAM/._1000": b"\0\5\x16\7",
    }
    recordings = [recording(seed) for seed in range(people)]
    for n in reversed(range(people)):  # not in order
        files |= members(f"{1000 + 7 * n}", recordings[n], annotation_csv())
    return files, recordings


def archive(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz", compresslevel=1) as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def extract(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder / "GLEAM"


# ---------------------------------------------------------------- the layout


@pytest.fixture(scope="module")
def made() -> tuple[dict[str, bytes], list[list[Reading]]]:
    return everyone()


@pytest.mark.parametrize("layout", ["archive", "folder"])
def test_everything_is_as_by_hand(
    layout: str,
    made: tuple[dict[str, bytes], list[list[Reading]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files, recordings = made
    if layout == "archive":
        archive(tmp_path / "GLEAM.tar.gz", files)
    else:
        extract(tmp_path, files)
    people = gleam.load(tmp_path)
    assert len(people) == 38
    for n in (0, 1, 37):
        X, y = oracle(recordings[n], [MEAL])
        np.testing.assert_allclose(people[n].X, X, rtol=1e-7, atol=1e-9)
        assert people[n].y.tolist() == y
        assert 0 < sum(y) < len(y) < 60 / WINDOW - 2  # the gap in gravity cost two windows
    assert people[0].X.shape[1] == 57 == len(gleam.FEATURES)
    gravity = [i for i, name in enumerate(gleam.FEATURES) if name.startswith("variance gravity")]
    assert np.array_equal(people[0].X[:, gravity], np.zeros((len(people[0]), 3)))
    monkeypatch.setattr(gleam, "_read", None)
    again = gleam.load(tmp_path)  # from its cache
    assert all(np.array_equal(a.X, b.X) for a, b in zip(again, people, strict=True))
    assert all(np.array_equal(a.y, b.y) for a, b in zip(again, people, strict=True))


# ---------------------------------------------------------------- strays


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("", []),
        ("eat", []),
        ("eat eat", [(0, 1)]),
        ("walk walk eat eat walk walk eat eat", [(2, 3), (6, 7)]),
        ("eat w walk walk", [(0, 1)]),  # a stray in place of the end's name
        ("w eat walk walk", [(0, 1)]),  # ... and of the start's
        ("w w eat eat", [(2, 3)]),
        ("w eat eat walk walk", [(1, 2)]),  # a stray row
        ("walk walk w eat eat talk talk", [(3, 4)]),
        ("walk eat eat walk walk", [(1, 2)]),  # an end was lost
        ("eat eat eat walk walk eat eat", [(0, 1), (5, 6)]),
        ("EAT  eat", [(0, 1)]),
        ("eating eating", []),
    ],
)
def test_annotations_are_paired_by_their_names(rows: str, expected: list[tuple[int, int]]) -> None:
    table = "unix time,Activity\n" + "".join(f"{i}, {a}\n" for i, a in enumerate(rows.split()))
    read = gleam._annotation(table, gleam._columns(table))
    made = gleam.eating(read)
    assert made.shape == (len(expected), 2)
    assert [tuple(interval) for interval in made] == expected


# ---------------------------------------------------------------- what is refused


def test_archives_that_are_something_else_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "GLEAM.tar.gz"
    path.write_bytes(b"<html>moved</html>")
    with pytest.raises(FileRefused, match="not a tar archive"):
        gleam.load(tmp_path)
    with pytest.raises(FileRefused, match=f"MD5 is .*, expected {gleam.MD5}"):
        gleam.verify(path)
    whole = archive(path, members("1234", recording(0), annotation_csv())).read_bytes()
    with pytest.raises(FileRefused, match=r"has 1 people and \(57,\) features, expected 38"):
        gleam.load(tmp_path)
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FileRefused, match="is damaged"):
        gleam.load(tmp_path)
    assert not list(tmp_path.glob("*.npz"))  # what was refused is not kept


# ---------------------------------------------------------------- the stand-in


def test_stand_in_has_the_shape_of_gleam() -> None:
    people = gleam.stand_in()
    sizes = np.array([len(person) for person in people])
    assert (len(sizes), sizes.min(), sizes.max()) == (38, 242, 3416)
    assert abs(sizes.mean() - 1930) < 30
    share = np.array([person.y.mean() for person in people])
    assert 0.095 < share.min() < 0.15 < 0.25 < share.max() < 0.305
    assert {person.X.shape[1] for person in people} == {57}
    assert np.array_equal(gleam.stand_in()[3].X, people[3].X)
    assert not np.array_equal(gleam.stand_in(1)[3].X, people[3].X)
