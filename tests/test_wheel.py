"""The wheel, installed alone: what users get works without the checkout and without any extra."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from test_import import PROGRAM

import fedbo

ROOT = Path(__file__).parents[1]
CONSTRAINTS = ROOT / "constraints.txt"
STUDIES = """
import fedbo
from fedbo.exchange import FolderExchange
from fedbo.trust import KeyPair, Keyring

federation = fedbo.Federation({"x": fedbo.Float(0, 1), "y": fedbo.Float(0, 1)})
first, second = [
    fedbo.Agent(federation, name=name, seed=0, keys=KeyPair.generate())
    for name in ("first", "second")
]
for _ in range(5):
    trial = first.ask()
    first.tell(trial, -abs(trial.params["x"] - 0.3))

exchange = FolderExchange("exchange", Keyring())
assert exchange.publish(first.message())
assert second.receive(exchange.fetch(federation)) == 1
tip, best = second.ask().params, first.best.params
print(len(first.trials), all(abs(tip[name] - best[name]) < 1 / 16 for name in best))
"""


def run(*command: str | Path, folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with a source distribution, and the wheel that was built from it."""
    pytest.importorskip(
        "build.env", reason="build is missing: pip install -c constraints.txt build"
    )
    folder = tmp_path_factory.mktemp("built")
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--dest", folder / "first"]
    if subprocess.run([*pip, "hatchling"], capture_output=True).returncode:
        pytest.skip("no package index can be reached: hatchling could not be downloaded")
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT, folder=folder)
    return folder


def test_the_files_are_those_that_users_need(built: Path) -> None:
    [wheel], [source] = built.glob("*.whl"), built.glob("*.tar.gz")
    names = set(zipfile.ZipFile(wheel).namelist())
    metadata = f"fedbo-{fedbo.__version__}.dist-info"
    assert {name.partition("/")[0] for name in names} == {"fedbo", "fedbo_paper", metadata}
    assert {"fedbo/py.typed", "fedbo/testing/policies.py", f"{metadata}/licenses/LICENSE"} <= names
    with tarfile.open(source) as archive:
        sources = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "CHANGELOG.md", "src/fedbo/py.typed", "tests/test_wheel.py"} <= sources
    assert not {name.partition("/")[0] for name in sources} & {".venv", "dist", "results", "site"}


def test_the_wheel_works_alone(built: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=False)
    python, [wheel] = tmp_path / "env/bin/python", built.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "--python", python]
    run(*pip, "install", "-q", "-c", CONSTRAINTS, wheel, folder=tmp_path)
    alone = [python, "-I"]  # without PYTHONPATH and the folder of the test
    said = run(*alone, tmp_path / "env/bin/fedbo", "--version", folder=tmp_path)
    assert said == f"fedbo {fedbo.__version__}\n"
    loaded = run(*alone, "-c", PROGRAM, "import fedbo; fedbo.Agent", folder=tmp_path).split()
    foreign = {name for name in loaded if not name.startswith("_")}
    # typer brings typing_extensions along, and msgspec loads it where it is installed
    foreign -= {"cython_runtime", "typing_extensions"}
    assert foreign == {"fedbo", "numpy", "scipy", "msgspec", "threadpoolctl"}
    assert run(*alone, "-c", STUDIES, folder=tmp_path) == "5 True\n"
