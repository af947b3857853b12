"""``fedbo flower new`` writes an app that Flower accepts."""

import tomllib

import pytest
from cli.terminal import run
from flwr.cli.build import build_fab_from_disk
from flwr.cli.config_utils import load_and_validate

import fedbo
from fedbo.flower.new import write_app


@pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")  # Flower uses it
def test_an_app_that_flower_can_build(tmp_path):
    folder = tmp_path / "my-fleet"
    assert f"flwr run {folder} --stream" in run("flower", "new", folder)
    config, warnings = load_and_validate(folder / "pyproject.toml")
    assert not warnings
    assert config["tool"]["flwr"]["app"]["components"]["clientapp"] == "my_fleet.client_app:app"
    assert len(build_fab_from_disk(folder)) > 1000
    for path in [*folder.rglob("*.py"), *folder.rglob("*.toml"), *folder.rglob("*.md")]:
        assert "{{" not in path.read_text()


def test_its_two_halves_fit_together(tmp_path, monkeypatch):
    write_app(tmp_path / "two-halves")
    monkeypatch.syspath_prepend(tmp_path / "two-halves")
    from flower.loopback import Loopback, partition
    from two_halves.client_app import app as client
    from two_halves.server_app import app as server

    grid = Loopback(client, 3, tmp_path / "out", partition)
    config = tomllib.loads((tmp_path / "two-halves" / "pyproject.toml").read_text())
    options = config["tool"]["flwr"]["app"]["config"] | {"folder": str(tmp_path / "out")}
    server(grid, grid.context(**{k: v for k, v in options.items() if k != "folder"}))
    agents = [fedbo.Agent.load(path) for path in (tmp_path / "out").glob("*/sites/*/agent.fedbo")]
    assert [len(agent.trials) for agent in agents] == 3 * [9]
    assert all(agent.best.score > -2.0 for agent in agents)
    text = run("flower", "sites", tmp_path / "out")
    assert all(f"site-{i}" in text for i in range(3))
    assert "learning_rate" in text


def test_a_folder_without_sites(tmp_path):
    assert "has no agent.fedbo" in run("flower", "sites", tmp_path, code=1)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "agent.fedbo").write_bytes(b"junk")
    assert "agent.fedbo" in run("flower", "sites", tmp_path, code=1)


def test_no_two_apps_share_trials(tmp_path):
    for name in ("one", "two"):
        write_app(tmp_path / name)
    files = [tmp_path / n / n / "federation.toml" for n in ("one", "two")]
    first, second = map(fedbo.Federation.load, files)
    assert first.fingerprint != second.fingerprint


def test_what_is_there_is_not_overwritten(tmp_path):
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "mine.txt").write_text("mine")
    with pytest.raises(ValueError, match="exists and is not empty"):
        write_app(tmp_path / "app")
    assert [path.name for path in (tmp_path / "app").iterdir()] == ["mine.txt"]
    run("flower", "new", tmp_path / "app", code=1)


@pytest.mark.parametrize("name", ["My-App", "1st", "a--b", "a_b", "app-", "class", "math", "flwr"])
def test_a_name_that_is_no_name_for_an_app(name, tmp_path):
    with pytest.raises(ValueError, match=f"the folder is called '{name}', expected"):
        write_app(tmp_path / name)
