"""Real data: the figures known of it, and files that are not it."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from cli.terminal import run
from paper.real_data import folder_with
from scipy.io import savemat

from fedbo.errors import FileRefused
from fedbo_paper.data import har, landmine

DISTINCT = 50  # rows of made HAR tables before they repeat


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty user cache folder, and no FEDBO_DATA."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("FEDBO_DATA", raising=False)
    return tmp_path / "cache" / "fedbo"


# ---------------------------------------------------------------- real data


def test_real_landmine_fields() -> None:
    fields = landmine.load(folder_with("LandmineData.mat"))
    sizes = np.array([len(field) for field in fields])
    positive = np.array([field.y.mean() for field in fields])
    assert len(fields) == 29
    assert (sizes.min(), sizes.max(), round(sizes.mean())) == (445, 690, 511)
    assert (positive.min().round(4), positive.max().round(4)) == (0.0295, 0.0935)
    assert positive.mean().round(4) == 0.0618
    assert {field.X.shape[1] for field in fields} == {9}
    assert set(np.concatenate([field.y for field in fields])) == {0, 1}


def test_real_landmine_file_is_the_known_one(tmp_path: Path) -> None:
    mat = folder_with("LandmineData.mat") / "LandmineData.mat"
    landmine.verify(mat)
    with zipfile.ZipFile(tmp_path / "LandmineData.zip", "w") as archive:
        archive.write(mat, "LandmineData/LandmineData.mat")
    landmine.verify(tmp_path / "LandmineData.zip")
    zipped, plain = landmine.load(tmp_path), landmine.load(mat.parent)
    assert all(np.array_equal(a.X, b.X) for a, b in zip(zipped, plain, strict=True))
    assert all(np.array_equal(a.y, b.y) for a, b in zip(zipped, plain, strict=True))
    assert os.listdir(tmp_path) == ["LandmineData.zip"]


def test_real_har() -> None:
    people = har.load(folder_with("har.npz"))
    sizes = np.array([len(person) for person in people])
    assert len(people) == 30
    assert (sizes.min(), sizes.max(), round(sizes.mean()), sizes.sum()) == (281, 409, 343, 10299)
    assert {person.X.shape[1] for person in people} == {561}
    assert all(set(person.y) == set(range(1, 7)) for person in people)
    assert all(np.abs(person.X).max() <= 1 for person in people)


# ---------------------------------------------------------------- landmine


def fields(n: int = 29, features: int = 9, labels: int = 2) -> io.BytesIO:
    rng = np.random.default_rng(0)
    feature, label = np.empty((1, n), object), np.empty((1, n), object)
    for i in range(n):
        feature[0, i] = rng.normal(size=(500, features))
        label[0, i] = (np.arange(500)[:, None] % labels).astype(np.uint8)
    file = io.BytesIO()
    savemat(file, {"feature": feature, "label": label}, do_compression=True)
    return file


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (fields(n=28).getvalue(), "has 28 fields and labels of 28, expected 29"),
        (fields(features=8).getvalue(), r"field 0 of .*features \(500, 8\)"),
        (fields(labels=3).getvalue(), r"labels \[0, 1, 2\], expected 0 and 1"),
        (b"<html>moved</html>", "not a MATLAB file with 'feature' and 'label'"),
    ],
)
def test_a_landmine_file_that_is_something_else_is_refused(
    content: bytes, complaint: str, tmp_path: Path
) -> None:
    (tmp_path / "LandmineData.mat").write_bytes(content)
    with pytest.raises(FileRefused, match=complaint):
        landmine.load(tmp_path)
    with pytest.raises(FileRefused, match=f"SHA-256 .*, expected {landmine.SHA256}"):
        landmine.verify(tmp_path / "LandmineData.mat")


# ---------------------------------------------------------------- HAR


def tables(train: int = 7, test: int = 5) -> dict[str, tuple[np.ndarray, ...]]:
    """X, y and subject of both parts; values of few digits, which are fast to write and to read."""
    rng = np.random.default_rng(1)
    sizes = np.full(30, 343)
    sizes[:3] = 281, 409, 10299 - 281 - 409 - 27 * 343
    everyone = np.repeat(np.arange(1, 31), sizes)
    made = {}
    for part, rows, subjects in (("train", train, everyone), ("test", test, everyone[train:])):
        X = rng.integers(-9, 10, (DISTINCT, 561))[np.arange(rows) % DISTINCT] / 10
        made[part] = X, np.arange(rows) % 6 + 1, subjects[:rows]
    return made


def texts(made: dict[str, tuple[np.ndarray, ...]]) -> dict[str, str]:
    """The files of the original layout, other files among them."""
    files = {"features.txt": "1 tBodyAcc-mean()-X\n", "train/Inertial Signals/x_train.txt": "9 9\n"}
    for part, (X, y, subject) in made.items():
        lines = [" ".join(f"{value:4.1f}" for value in row) for row in X[:DISTINCT]]
        files[f"{part}/X_{part}.txt"] = "".join(f"{lines[i % DISTINCT]}\n" for i in range(len(X)))
        files[f"{part}/y_{part}.txt"] = "\n".join(map(str, y)) + "\n"
        files[f"{part}/subject_{part}.txt"] = "\n".join(map(str, subject)) + "\n"
    return files


def zipped(made: dict[str, tuple[np.ndarray, ...]]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, text in texts(made).items():
            archive.writestr(f"UCI HAR Dataset/{name}", text)
            archive.writestr(f"__MACOSX/UCI HAR Dataset/{name}", "litter")
    return file.getvalue()


def nested(inner: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("UCI HAR Dataset.names", "")
        archive.writestr("UCI HAR Dataset.zip", inner)
    return file.getvalue()


@pytest.mark.parametrize("layout", ["folder", "zip", "nested zip"])
def test_har_is_read_in_every_layout(layout: str, tmp_path: Path) -> None:
    made = tables()
    path = tmp_path / "UCI HAR Dataset"
    if layout == "folder":
        for name, text in texts(made).items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_text(text)
    else:
        path = path.with_suffix(".zip")
        path.write_bytes(zipped(made) if layout == "zip" else nested(zipped(made)))
    arrays = har._read(path)
    for i, name in enumerate(("X", "y", "subject")):
        expected = np.concatenate([made["train"][i], made["test"][i]])
        assert np.array_equal(arrays[name], expected.astype(arrays[name].dtype))
    assert arrays["X"].dtype == np.float32


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"X": np.zeros((10, 561))}, r"shapes \(10, 561\), .* expected \(10299, 561\)"),
        ({"y": np.zeros(10299, int)}, r"activities \[0\], expected 1 to 6"),
        ({"subject": np.arange(10299) % 30 + 1}, "343 to 344 rows a person, expected from 281"),
        ({"X": np.full((10299, 561), np.nan)}, "X holds NaN"),
        ({"y": None}, "has no y"),
    ],
)
def test_har_of_another_shape_is_refused(
    change: dict[str, np.ndarray | None], complaint: str, tmp_path: Path
) -> None:
    sizes = np.full(30, 343)
    sizes[:3] = 281, 409, 10299 - 281 - 409 - 27 * 343
    arrays = {
        "X": np.zeros((10299, 561), np.float32),
        "y": np.arange(10299) % 6 + 1,
        "subject": np.repeat(np.arange(1, 31), sizes),
    } | change
    np.savez(tmp_path / "har.npz", **{k: v for k, v in arrays.items() if v is not None})
    with pytest.raises(FileRefused, match=complaint):
        har.load(tmp_path)


def test_har_archives_that_are_something_else_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "UCI HAR Dataset.zip"
    path.write_bytes(b"<html>moved</html>")
    with pytest.raises(FileRefused, match="not a zip file"):
        har.load(tmp_path)
    for change, complaint in (
        ({"test/y_test.txt": None}, r"holds no test/y_test\.txt, expected the layout of https"),
        ({"train/y_train.txt": "1\nwalking\n"}, r"train/y_train\.txt is damaged"),
        ({"train/y_train.txt": "1\n2\n"}, "lengths differ: {'X': 12, 'y': 7, 'subject': 12}"),
    ):
        with zipfile.ZipFile(path, "w") as archive:
            for name, text in (texts(tables()) | change).items():
                if text is not None:
                    archive.writestr(f"UCI HAR Dataset/{name}", text)
        with pytest.raises(FileRefused, match=complaint):
            har.load(tmp_path)
    assert not (tmp_path / "har.npz").exists()  # what was refused is not kept
    (tmp_path / "har.npz").write_bytes(b"PK half a file")
    with pytest.raises(FileRefused, match=r"har\.npz is damaged, or not an \.npz file"):
        har.load(tmp_path)


# ---------------------------------------------------------------- status


def test_status_shows_what_is_there_and_what_is_not(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "LandmineData.mat").write_bytes(fields().getvalue())
    (tmp_path / "har.npz").write_bytes(b"no arrays")
    text = run("data", "status", "--data", tmp_path)
    lines = {line.split()[1]: line for line in text.splitlines() if "│" in line}
    for part in ("29 fields", "14,500", " 9 ", "passed", str(tmp_path / "LandmineData.mat")):
        assert part in lines["landmine"]
    assert "failed" in lines["har"] and "not found" in lines["gleam"]
    assert "har.npz is damaged" in text
    assert "`fedbo data fetch gleam`" in text
