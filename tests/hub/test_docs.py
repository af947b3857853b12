"""The pages on hubs are right: their commands run as written, and their tables have everything.

An operator and two members follow the pages, each with a home folder of its own and in processes of
their own, through TLS with a private certificate authority. Only the port is another one, so that
two of these tests can run at once, and the second member has another name.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import optuna
import pytest
from contracts.authority import certify
from contracts.liar import free_port

import fedbo
from fedbo.hub.settings import Settings
from fedbo.hub.store import schema

PAGES = Path(__file__).parents[2] / "docs" / "reference"
TEXT = "".join((PAGES / name).read_text(encoding="utf-8") for name in ("hub.md", "members.md"))
PORT = "8765"
KNOWN = "What the hub can know"


# The text


class Block(NamedTuple):
    language: str
    code: str


def sections() -> dict[str, str]:
    """The text below each heading of the second level, by heading."""
    parts = re.split(r"^## (.*)\n", TEXT, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def blocks(heading: str) -> list[Block]:
    found = re.findall(r"^```(\w+)\n(.*?)^```$", sections()[heading], re.M | re.S)
    return [Block(*one) for one in found]


def rows(heading: str) -> list[list[str]]:
    """The cells of the tables below a heading, without their titles."""
    lines = [line for line in sections()[heading].splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells[1:] if not row[0].startswith("---")]


def test_every_column_of_every_table_is_listed() -> None:
    listed = {row[0].strip("`"): set(re.findall(r"`(\w+)`", row[1])) for row in rows(KNOWN)}
    tables = schema.metadata.tables.values()
    assert listed == {t.name: {column.name for column in t.columns} - {"id"} for t in tables}


def test_every_setting_is_listed_with_its_default() -> None:
    defaults = Settings()
    listed = {row[2].strip("`"): row for row in rows("Settings")}
    assert [*listed] == [*Settings.__struct_fields__]
    for name, (flag, variable, _, default, meaning) in listed.items():
        assert flag == f"`--{name.replace('_', '-')}`"
        assert variable == f"`FEDBO_HUB_{name.upper()}`"
        value = getattr(defaults, name)
        shown = str(value).lower() if isinstance(value, bool) else f"{value}"
        assert default.strip("`") == shown.removesuffix(".0")
        assert meaning


# The commands


class Home:
    """A user with a home folder, who follows the page in a shell."""

    def __init__(self, path: Path, port: int) -> None:
        path.mkdir()
        self.path, self._port, self.name = path, port, path.name
        self._env = {
            "HOME": str(path),
            "COLUMNS": "120",
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "PYTHONPATH": str(Path(fedbo.__file__).parents[1]),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }

    def text(self, code: str) -> str:
        return code.replace(PORT, str(self._port)).replace("--name clinic", f"--name {self.name}")

    def write(self, name: str, code: str) -> None:
        (self.path / name).write_text(self.text(code), encoding="utf-8")

    def start(self, script: str) -> subprocess.Popen[str]:
        """Run lines of a shell; as in a terminal, what was exported stays."""
        exported = self.path / "exported.sh"
        before = exported.read_text() if exported.exists() else ""
        exports = "".join(f"{line}\n" for line in script.splitlines() if line.startswith("export "))
        exported.write_text(before + exports)
        return subprocess.Popen(
            ["/bin/sh", "-e", "-c", before + self.text(script)],
            cwd=self.path,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            start_new_session=True,
        )

    def run(self, script: str) -> str:
        return finish(self.start(script))

    def follow(self, heading: str) -> str:
        """Do what is below a heading: write its files, and run its commands."""
        said = ""
        for block in blocks(heading):
            named = re.match(r"# (\w+\.(?:py|toml))\n", block.code)
            if named:
                self.write(named[1], block.code)
            elif block.language == "sh":
                said += self.run(block.code)
        return said


def finish(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, f"{process.args}\n{out}\n{err}"
    return out


class World(NamedTuple):
    operator: Home
    sites: tuple[Home, Home]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """An operator and two members who have followed the page up to "Tune"."""
    folder = tmp_path_factory.mktemp("hub")
    made, port = certify(folder, "localhost"), free_port()
    operator = Home(folder / "operator", port)
    shutil.copy(made.certificate, operator.path / "certificate.pem")
    shutil.copy(made.key, operator.path / "key.pem")
    *files, prepare, serve = blocks("First start")
    for block in files:
        named = re.match(r"# (\w+\.toml)\n", block.code)
        assert named is not None
        operator.write(named[1], block.code)
    operator.run(prepare.code)
    with serving(operator, serve, made.authority, port):
        sites = Home(folder / "clinic", port), Home(folder / "lab", port)
        for site in sites:
            shutil.copy(made.authority, site.path / "ca.pem")
            shutil.copy(operator.path / "invitation.txt", site.path / "invitation.txt")
            site.follow("Join")
            site.write("tune.py", blocks("Tune")[0].code)
        first = [site.start(blocks("Tune")[1].code) for site in sites]  # at the same time
        for process in first:
            finish(process)
        for site in sites:  # and once more, when the other one has published
            site.run(blocks("Tune")[1].code)
        yield World(operator, sites)


@contextlib.contextmanager
def serving(operator: Home, block: Block, authority: Path, port: int) -> Iterator[None]:
    process = operator.start(f"exec {block.code}")
    context = ssl.create_default_context(cafile=str(authority))
    end = time.monotonic() + 120
    try:
        while True:
            assert process.poll() is None and time.monotonic() < end, process.communicate()
            with contextlib.suppress(OSError):
                url = f"https://localhost:{port}/healthz"
                urllib.request.urlopen(url, timeout=5, context=context).close()
                break
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        out, err = process.communicate(timeout=120)
    assert str(operator.path / "fedbo.db") in "".join(out.split("\n"))
    assert "fedbo-m-" not in out + err


def member(site: Home) -> str:
    """The name of the only member that a site is, as the command says."""
    [name] = re.findall(r"/liver +(\w+)", site.run("fedbo hub memberships"))
    assert name == site.name
    return name


@pytest.mark.slow
def test_two_studies_in_separate_homes_hear_each_other(world: World) -> None:
    names = [member(site) for site in world.sites]
    assert names[0] != names[1]
    for site, other in zip(world.sites, reversed(names), strict=True):
        study = optuna.load_study(study_name="liver", storage=f"sqlite:///{site.path}/site.db")
        assert len(study.trials) == 40
        queries = [trial.system_attrs["fedbo:query"] for trial in study.trials]
        heard = {name for query in queries for name in query.get("trust", {})}
        assert heard == {f"{other}/liver"}


@pytest.mark.slow
def test_the_operator_sees_the_members_and_every_change(world: World) -> None:
    said = world.operator.follow("Who takes part")
    for site in world.sites:
        assert member(site) in said
    for action in ("created", "invited", "joined", "published"):
        assert f'"action":"{action}"' in said


@pytest.mark.slow
def test_a_backup_can_be_restored(world: World) -> None:
    world.operator.follow("Backup and restore")
    said = world.operator.run("fedbo hub members liver --db sqlite:///restored.db")
    assert all(member(site) in said for site in world.sites)


@pytest.mark.slow
def test_whoever_leaves_is_gone(world: World) -> None:
    first, second = world.sites
    name = member(first)
    assert name in second.run("fedbo exchange status https://localhost:8765")
    first.follow("Leave")
    assert name not in second.run("fedbo exchange status https://localhost:8765")
    assert name not in world.operator.run("fedbo hub members liver --config hub.toml")
    assert "You are not a member of any hub" in first.run("fedbo hub memberships")
