"""GLEAM (Rahman et al. 2015): is a person eating, from the sensors of a Google Glass.

38 people wore one for two hours each. The archive has a folder for each person, named by four
digits. It has two CSV files, which differ in their columns; photos, notes and files that macOS left
behind are ignored::

    Unix Time, Sensor, Value1, Value2, Value3     a reading; time in ms
    unix time, Activity                           start and end of an activity, in turn

The paper leaves some choices open, which are made here:

- **Windows** follow one another from the first reading of a recording, `WINDOW` seconds each. Two
  hours have 1,920 of them; the paper reports 1,930 a person on average. With a reading every 200 to
  400 ms, a window has 9 to 18 readings of each sensor.
- **Features** are mean, variance and kurtosis of 19 channels: three values of each
  of six sensors, and one of light. First come the means of all channels, in the order of
  `CHANNELS`, then the variances, then the kurtoses.
- **Windows with gaps** are left out if any of the six sensors has fewer than `FEWEST` readings,
  because a kurtosis of fewer is meaningless. Light is an exception: Android reports it only when it
  changes, so in a window without a reading it has the last value, variance 0 and kurtosis 0.
- **Labels** are 1 if the middle of the window is inside an interval of `eat`, and 0 otherwise.

Reading takes about a second for each person, so the arrays are cached as ``.npz``.

=======  ===============================================================================
v        values of readings (r, c): one column a channel
k        which window a reading falls into, ascending (r,)
w        the windows that have readings, ascending (m,)
moments  (m, 3, c): mean, variance, kurtosis of each channel in each window
=======  ===============================================================================

Variance is the mean squared deviation (divisor n). Kurtosis is Fisher's, m₄ / m₂² − 3 without a
correction for small n, so a normal distribution has 0. A channel that is constant in a window gets
kurtosis 0.
"""

from __future__ import annotations

import csv
import hashlib
import io
import re
import tarfile
import zlib
from collections import defaultdict
from collections.abc import Iterator
from functools import partial, reduce
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedbo.errors import FileRefused
from fedbo_paper.data.places import Arrays, find, kept, read_arrays
from fedbo_paper.data.samples import Samples, by_owner

ADDRESS = "http://www.skleinberg.org/data/GLEAM.tar.gz"
MD5 = "10ad34716546e44c5078d392f25031e1"
ARCHIVE = "GLEAM.tar.gz"

PEOPLE = 38
WINDOW = 3.75  # seconds
CACHE = "gleam-1.npz"  # 1 is the version of the features defined above
NAMES: tuple[str, ...] = (CACHE, ARCHIVE, "GLEAM")
BY_HAND = f"{ARCHIVE} or the folder GLEAM that is in it"
AGENTS = "people"
FEWEST = 4  # readings of each of the six sensors in a window

# A sensor is recognised by a part of its name. The order is that of the channels.
_SENSORS = {
    "gyroscope": "gyro",
    "accelerometer": "^(?!.*linear).*accel",
    "magnetic field": "magnet",
    "rotation vector": "rotation",
    "linear acceleration": "linear",
    "gravity": "gravity",
}
_LIGHT = "light"
CHANNELS = (*(f"{sensor} {axis}" for sensor in _SENSORS for axis in "xyz"), _LIGHT)
FEATURES = tuple(f"{what} {of}" for what in ("mean", "variance", "kurtosis") for of in CHANNELS)

_READING = ("unixtime", "sensor", "value1", "value2", "value3")
_ANNOTATION = ("unixtime", "activity")
_EATING = "eat"
_UNNAMED = ("w", "")  # found where the name of an activity should be
_WIDTH = 32  # bytes of a cell: more than any number needs
_MOST_UNREADABLE = 0.05  # of the readings in a file; a file with more is refused

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Row = tuple[float, str]


def load(folder: Path | None = None) -> tuple[Samples, ...]:
    """Return the samples of each person; raise `MissingData` or `FileRefused`."""
    path = find("gleam", NAMES, folder, ", or run on made-up data with --stand-in")
    if path.name == CACHE:
        arrays = _checked(read_arrays(path), path)
    else:
        arrays = kept(CACHE, path, lambda: _checked(_read(path), path))
    return by_owner(arrays["X"], arrays["y"], arrays["person"])


def verify(path: Path) -> None:
    """Raise `FileRefused` if the download is not the known file."""
    with path.open("rb") as file:
        md5 = hashlib.file_digest(file, partial(hashlib.md5, usedforsecurity=False)).hexdigest()
    if md5 != MD5:
        raise FileRefused(f"its MD5 is {md5}, expected {MD5}")


def _checked(arrays: Arrays, path: Path) -> Arrays:
    missing = {"X", "y", "person"} - set(arrays)
    if missing:
        raise FileRefused(f"{path} has no {' and no '.join(sorted(missing))}: delete it")
    X, person = arrays["X"], np.unique(arrays["person"])
    if len(person) != PEOPLE or X.shape[1:] != (len(FEATURES),):
        raise FileRefused(
            f"{path} has {len(person)} people and {X.shape[1:]} features, "
            f"expected {PEOPLE} and {len(FEATURES)}"
        )
    return arrays


def _read(path: Path) -> Arrays:
    """Read windows and labels of all people: X, y and person."""
    recordings: dict[str, list[tuple[Floats, Floats]]] = defaultdict(list)
    annotations: dict[str, list[Row]] = defaultdict(list)
    for person, name, data in _tables(path):
        what = f"{name} in {path}"
        text = data.decode("ascii", "ignore").replace("\r\n", "\n").replace("\r", "\n")
        columns = _columns(text)
        if set(_READING) <= set(columns):
            recordings[person].append(_windows(_readings(text, columns, what), what))
        elif set(_ANNOTATION) <= set(columns):
            annotations[person] += _annotation(text, columns)
    for person in sorted(recordings.keys() ^ annotations.keys()):
        lacks = "annotation" if person in recordings else "sensor"
        raise FileRefused(f"{path}: person {person} has no {lacks} CSV file, expected both kinds")
    X, y, owner = [], [], []
    for person in sorted(recordings):
        middle, features = (
            np.concatenate(parts) for parts in zip(*recordings[person], strict=True)
        )
        middle, once = np.unique(middle, return_index=True)  # there may be a copy of the file
        X.append(features[once])
        y.append(_inside(middle, eating(annotations[person])).astype(np.uint8))
        owner.append(np.full(len(middle), int(person), dtype=np.int16))
    if not X:
        raise FileRefused(f"{path} has no folders named by four digits, expected {PEOPLE}")
    return {"X": np.concatenate(X), "y": np.concatenate(y), "person": np.concatenate(owner)}


def _tables(path: Path) -> Iterator[tuple[str, str, bytes]]:
    """Read every CSV file of every person: the four digits, the name of the file, its content.

    An archive is read once, from front to back, and never extracted.
    """
    if path.is_dir():
        for file in sorted(path.rglob("*")):
            name = file.relative_to(path).as_posix()
            if (person := _person(name)) and file.is_file():
                yield person, name, file.read_bytes()
        return
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                if (person := _person(member.name)) and member.isfile():
                    content = archive.extractfile(member)
                    assert content is not None  # as it is a file
                    yield person, member.name, content.read()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise FileRefused(
            f"{path} is damaged, or not a tar archive: {error}; fetch it again"
        ) from None


def _person(name: str) -> str | None:
    """Tell from the path whose file it is; None if it is ignored."""
    *parents, last = PurePosixPath(name).parts
    if not last.lower().endswith(".csv") or any(part[0] == "." for part in (*parents, last)):
        return None
    digits = [part for part in parents if re.fullmatch("[0-9]{4}", part)]
    return digits[-1] if digits and "__MACOSX" not in parents else None


def _columns(text: str) -> list[str]:
    """Return the columns of a table, with normalised spelling."""
    header = next(csv.reader([text.partition("\n")[0]]), [])
    return [re.sub("[^a-z0-9]", "", column.lower()) for column in header]


def _readings(text: str, columns: list[str], what: str) -> NDArray[np.bytes_]:
    """Return the cells of all readings, (r, 5): time, sensor and three values."""
    wanted = [columns.index(column) for column in _READING]
    body = text.partition("\n")[2]
    if not body.strip():
        raise FileRefused(f"{what} has no readings, only columns")
    width = max(wanted) + 1
    rows = [(row + [""] * width)[:width] for row in csv.reader(io.StringIO(body))]
    return np.array(rows, dtype=f"S{_WIDTH}")[:, wanted]


def _windows(cells: NDArray[np.bytes_], what: str) -> tuple[Floats, Floats]:
    """Compute the middles (m,) and features (m, 57) of a recording's windows."""
    length = 1e3 * WINDOW  # ms
    names, index = np.unique(cells[:, 1], return_inverse=True)
    readings: dict[str, Floats] = {}
    for sensor, pattern in (*_SENSORS.items(), (_LIGHT, _LIGHT)):
        is_named = np.array([bool(re.search(pattern, name.decode().lower())) for name in names])
        used = [0, 2] if sensor == _LIGHT else [0, 2, 3, 4]
        readings[sensor] = _numbers(cells[is_named[index]][:, used], f"{sensor} in {what}")
    start = min(r[0, 0] for r in readings.values())
    sensors = {
        sensor: moments(np.floor((r[:, 0] - start) / length).astype(np.int64), r[:, 1:])
        for sensor, r in readings.items()
    }
    light = sensors.pop(_LIGHT)
    enough: list[NDArray[np.int64]] = [s.w[s.counts >= FEWEST] for s in sensors.values()]
    w = reduce(partial(np.intersect1d, assume_unique=True), enough)
    of_light, has_light = carried(light, w)
    w = w[has_light]
    if not len(w):
        raise FileRefused(f"{what} has no window of {WINDOW:g} s with enough readings")
    features = np.concatenate([*(_of(s, w) for s in sensors.values()), of_light[has_light]], axis=2)
    return start + (w + 0.5) * length, features.reshape(len(w), len(FEATURES))


class Windows(msgspec.Struct, frozen=True, eq=False):
    """The windows of one sensor: numbers w (m,), counts of readings (m,), moments, last values."""

    w: Ints
    counts: Ints
    moments: Floats
    last: Floats


def moments(k: Ints, v: Floats) -> Windows:
    """Compute the moments of the readings v in each window k.

    >>> windows = moments(np.array([4, 4, 7]), np.array([[1.0], [3.0], [5.0]]))
    >>> windows.w.tolist(), windows.counts.tolist(), windows.moments[..., 0].tolist()
    ([4, 7], [2, 1], [[2.0, 1.0, -2.0], [5.0, 0.0, 0.0]])
    """
    starts = np.flatnonzero(np.diff(k, prepend=k[:1] - 1))
    counts = np.diff(starts, append=len(k))
    n = counts[:, None]
    # First subtract the first reading of the window, then the mean: so a large offset costs no
    # digits, and a constant channel has deviations of exactly 0.
    first = v[starts]
    deviations = v - np.repeat(first, counts, axis=0)
    offset = np.add.reduceat(deviations, starts) / n
    deviations -= np.repeat(offset, counts, axis=0)
    squares = deviations**2
    m2 = np.add.reduceat(squares, starts) / n
    m4 = np.add.reduceat(squares**2, starts) / n
    varies = m2**2 > 0
    kurtosis = np.where(varies, m4 / np.where(varies, m2**2, 1.0) - 3.0, 0.0)
    return Windows(
        w=k[starts],
        counts=counts,
        moments=np.stack([first + offset, m2, kurtosis], axis=1),
        last=v[starts + counts - 1],
    )


def carried(windows: Windows, w: Ints) -> tuple[Floats, NDArray[np.bool_]]:
    """Compute moments in the windows w for a sensor that reports only changes.

    In a window without a reading, the sensor has its last value.

    Returns:
        The moments (m, 3, c), and which of the windows have a value at all (m,).

    >>> sensor = moments(np.array([2, 2]), np.array([[1.0], [3.0]]))
    >>> values, is_valued = carried(sensor, np.array([1, 2, 3]))
    >>> values[is_valued, :, 0].tolist(), is_valued.tolist()
    ([[2.0, 1.0, -2.0], [3.0, 0.0, 0.0]], [False, True, True])
    """
    i = np.searchsorted(windows.w, w, side="right") - 1
    silent = np.zeros_like(windows.moments)
    silent[:, 0] = windows.last
    heard = windows.w[i] == w
    return np.where(heard[:, None, None], windows.moments[i], silent[i]), i >= 0


def _of(sensor: Windows, w: NDArray[np.int64]) -> Floats:
    return sensor.moments[np.searchsorted(sensor.w, w)]


def _numbers(cells: NDArray[np.bytes_], what: str) -> Floats:
    """Convert cells to numbers, sorted by the first column; rows without numbers are left out."""
    numbers = np.array([_number(cell) for cell in cells.ravel()]).reshape(cells.shape)
    good = np.logical_and.reduce(np.isfinite(numbers), axis=1)
    if not good.any() or np.mean(~good) > _MOST_UNREADABLE:
        raise FileRefused(
            f"{what}: {len(good)} readings, of which {np.count_nonzero(~good)} are not numbers, "
            f"expected some, and at most {_MOST_UNREADABLE:.0%} of them unreadable"
        )
    numbers = numbers[good]
    return numbers[np.argsort(numbers[:, 0], kind="stable")]


def _number(cell: Any) -> float:
    try:
        return float(cell)
    except ValueError:
        return np.nan


def _annotation(text: str, columns: list[str]) -> list[Row]:
    time, activity = (columns.index(column) for column in _ANNOTATION)
    return [
        (at, row[activity].strip().lower())
        for row in csv.reader(io.StringIO(text.partition("\n")[2]))
        if len(row) > max(time, activity) and np.isfinite(at := _number(row[time]))
    ]


def eating(rows: list[Row]) -> Floats:
    """Find the starts and ends, (e, 2), of eating in annotation rows (time, activity).

    Rows are start and end in turn. If one is missing, counting would turn every later meal into a
    pause. So neighbours are paired by name, such that the fewest rows are left over. A row without
    a proper name can be paired with any other.

    >>> eating([(0, "walk"), (5, "walk"), (6, "eat"), (9, "w"), (9, "talk"), (12, "talk")]).tolist()
    [[6.0, 9.0]]
    >>> eating([(0, "walk"), (6, "eat"), (9, "eat")]).tolist()
    [[6.0, 9.0]]
    """
    rows = sorted(dict.fromkeys(rows), key=lambda row: row[0])
    names = [None if name in _UNNAMED else name for _, name in rows]
    # cost[i]: of the best pairing of rows i and later; a row left over costs 1
    cost = [0.0] * (len(rows) + 2)
    for i in reversed(range(len(rows))):
        cost[i] = min(1.0 + cost[i + 1], _pairing(names[i : i + 2]) + cost[i + 2])
    intervals = []
    i = 0
    while i < len(rows):
        paired = _pairing(names[i : i + 2]) + cost[i + 2] <= 1.0 + cost[i + 1]
        if paired and _EATING in names[i : i + 2]:
            intervals.append((rows[i][0], rows[i + 1][0]))
        i += 2 if paired else 1
    return np.array(intervals, dtype=np.float64).reshape(-1, 2)


def _pairing(names: list[str | None]) -> float:
    """Return the cost of taking two rows as start and end of one activity."""
    if len(names) < 2:
        return np.inf
    if None in names:
        return 0.25
    return 0.0 if names[0] == names[1] else np.inf


def _inside(at: Floats, intervals: Floats) -> NDArray[np.bool_]:
    """Whether each time is inside one of the intervals, which ascend and do not overlap."""
    if not len(intervals):
        return np.zeros(len(at), dtype=np.bool_)
    i = np.searchsorted(intervals[:, 0], at, side="right") - 1
    inside: NDArray[np.bool_] = (i >= 0) & (at < intervals[i, 1])
    return inside


def stand_in(seed: int = 0) -> tuple[Samples, ...]:
    """Make up samples of the shape of GLEAM. They are **not GLEAM**, and say nothing about people.

    They only show that the program runs. There are 38 people with 242 to 3,416 rows, 1,930 on
    average, and 57 features. Rows are normally distributed. Rows of eating, 10 to 30 % of each
    person's, are shifted in a direction that people partly share. Each person has other means and
    spreads. The classes overlap: the best classifier is wrong in a few per cent of rows.

    Args:
        seed: The random seed.

    >>> people = stand_in()
    >>> len(people), people[0].X.shape[1], min(map(len, people)), max(map(len, people))
    (38, 57, 242, 3416)
    """
    rng = np.random.default_rng(seed)
    d = len(FEATURES)
    sizes = np.rint(242 + (3416 - 242) * np.linspace(0, 1, PEOPLE) ** 0.88).astype(np.int64)
    common = rng.standard_normal(d)
    scale = rng.lognormal(0.0, 1.0, d)  # channels have different units
    people = []
    for size in rng.permutation(sizes):
        direction = common + rng.uniform(0.3, 1.0) * rng.standard_normal(d)
        direction *= rng.uniform(2.6, 3.6) / np.linalg.norm(direction)
        y = rng.permutation(np.arange(size) < rng.uniform(0.1, 0.3) * size).astype(np.int64)
        Z = rng.standard_normal((size, d)) + y[:, None] * direction
        personal = rng.standard_normal(d), rng.lognormal(0.0, 0.3, d)
        people.append(Samples(X=scale * (personal[0] + personal[1] * Z), y=y))
    return tuple(people)
