"""The container of the hub: linted, without secrets, not as root, and with settings that exist.

The other files that are no Python, such as GitHub's workflows and forms, are linted here, too.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from contracts.authority import certify

from fedbo.hub.settings import load

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def tool(name: str) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    program = shutil.which(name, path=path)
    if program is None:
        pytest.skip(f"{name} is not installed: pip install -c constraints.txt -e '.[dev]'")
    return program


def passes(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile, with continued lines joined."""
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines()]
    return [
        (line.split(maxsplit=1)[0], line.split(maxsplit=1)[1])
        for line in lines
        if line and not line.startswith("#")
    ]


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return loaded


@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("compose-spec", "deploy/compose.yaml"),
        ("citation-file-format", "CITATION.cff"),
        ("dependabot", ".github/dependabot.yml"),
        ("github-issue-config", ".github/ISSUE_TEMPLATE/config.yml"),
        ("github-issue-forms", ".github/ISSUE_TEMPLATE/[!c]*.yml"),
        ("github-workflows", ".github/workflows/*.yml"),
    ],
)
def test_the_files_are_valid(schema: str, files: str) -> None:
    options = ["--builtin-schema", f"vendor.{schema}", "--default-filetype", "yaml"]
    passes(tool("check-jsonschema"), *options, *ROOT.glob(files))


def test_the_dockerfile_is_sound() -> None:
    passes(tool("hadolint"), DEPLOY / "Dockerfile")


def test_workflows_have_few_rights_and_pinned_actions() -> None:
    passes(tool("zizmor"), "--offline", "--persona=pedantic", ROOT / ".github")


def test_images_have_versions_and_what_is_copied_exists(compose: dict[str, Any]) -> None:
    images = [value.split()[0] for name, value in instructions() if name == "FROM"]
    images += [one["image"] for one in compose["services"].values() if "build" not in one]
    assert images
    assert all(":" in image and not image.endswith(":latest") for image in images)
    ignore = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    assert "*" in ignore
    for name, value in instructions():
        words = [word for word in value.split() if not word.startswith("--")]
        if name == "COPY" and "--from" not in value:
            assert all((ROOT / source).exists() for source in words[:-1])
            assert {f"!{source}" for source in words[:-1]} <= {*ignore}


def test_runs_as_a_user_without_rights(compose: dict[str, Any]) -> None:
    assert ("USER", "10001:10001") in instructions()
    hub = compose["services"]["hub"]
    assert hub["read_only"] and hub["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in hub["security_opt"]
    volume, _ = compose["services"]["database"]["volumes"][0].split(":")
    assert volume in compose["volumes"]


def test_the_key_that_signs_releases_outlives_its_container(compose: dict[str, Any]) -> None:
    pairs = [word for name, value in instructions() if name == "ENV" for word in value.split()]
    state = dict(pair.split("=", 1) for pair in pairs)["FEDBO_STATE"]
    hub = compose["services"]["hub"]
    kept = dict(reversed(mount.split(":")) for mount in hub["volumes"])
    assert kept[state] in compose["volumes"]
    assert not [mount for mount in hub["tmpfs"] if mount.startswith(state)]


def test_settings_exist(compose: dict[str, Any]) -> None:
    pairs = [word for name, value in instructions() if name == "ENV" for word in value.split()]
    inside = dict(pair.split("=", 1) for pair in pairs)
    alone = load({}, None, inside)
    assert (alone.host, alone.port) == ("0.0.0.0", 8765)
    environment = compose["services"]["hub"]["environment"]
    together = load({}, None, inside | {name: _filled(text) for name, text in environment.items()})
    assert together.db.startswith("postgresql+psycopg://")
    (front,) = compose["networks"]["front"]["ipam"]["config"]
    assert together.trusted_proxies == front["subnet"]
    assert together.public_url == "https://hub.example.org"


def test_the_hub_is_reached_through_the_proxy_only(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert [name for name, service in services.items() if "ports" in service] == ["caddy"]
    caddyfile = (DEPLOY / "Caddyfile").read_text()
    assert "reverse_proxy {$HUB:hub:8765}" in caddyfile and "hub" in services
    assert "HUB_NAME" in services["caddy"]["environment"] and "{$HUB_NAME}" in caddyfile


def _filled(text: str) -> str:
    """Fill in the default of a variable, as Compose does."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


def test_secrets_are_files_and_in_no_variable(compose: dict[str, Any]) -> None:
    secrets = compose["secrets"]
    for service in compose["services"].values():
        assert {*service.get("secrets", [])} <= {*secrets}
        for name, value in service.get("environment", {}).items():
            if "PASSWORD" in name or name.endswith("_KEY"):
                assert value.startswith("/run/secrets/")
                assert value.rsplit("/", 1)[1] in service["secrets"]
    assert all(one["file"].startswith("./secrets/") for one in secrets.values())
    assert "/deploy/secrets/" in (ROOT / ".gitignore").read_text()


def test_start_reads_the_password(tmp_path: Path) -> None:
    program = tmp_path / "fedbo"
    program.write_text('#!/bin/sh\necho "$PGPASSWORD" "$@"\n')
    program.chmod(0o755)
    (tmp_path / "password").write_text("open sesame\n")
    environ = {
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "PGPASSWORD_FILE": str(tmp_path / "password"),
    }
    done = subprocess.run(
        [DEPLOY / "start", "hub", "serve"], env=environ, capture_output=True, text=True
    )
    assert done.stdout == "open sesame hub serve\n"


@pytest.mark.slow
@pytest.mark.parametrize("tls", [False, True])
def test_start_and_health(tls: bool, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environ = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "FEDBO_STATE": str(tmp_path),
        "FEDBO_HUB_DB": f"sqlite:///{tmp_path / 'hub.db'}",
        "FEDBO_HUB_PORT": str(port),
    }
    if tls:
        made = certify(tmp_path, "hub.example.org")
        environ["FEDBO_HUB_TLS_CERTIFICATE"] = str(made.certificate)
        environ["FEDBO_HUB_TLS_KEY"] = str(made.key)
    check = [sys.executable, DEPLOY / "is-healthy"]
    assert subprocess.run(check, env=environ, capture_output=True).returncode != 0
    hub = subprocess.Popen(
        [DEPLOY / "start", "hub", "serve"],
        env=environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        end = time.monotonic() + 120
        while subprocess.run(check, env=environ, capture_output=True).returncode:
            assert hub.poll() is None and time.monotonic() < end, hub.communicate()
            time.sleep(0.2)
        hub.send_signal(signal.SIGTERM)
        _, errors = hub.communicate(timeout=120)
    finally:
        hub.kill()
        hub.communicate()
    assert hub.returncode == 0, errors
