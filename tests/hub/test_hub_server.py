"""A hub as a process: how it starts, what it tells, and how it stops."""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
from contracts.authority import certify
from contracts.hub import SOURCE, HubProcess
from contracts.hub_rows import message
from hub.world import BINARY, HERE

from fedbo.hub.store.credentials import new_secret, new_token


def settle(hub: HubProcess, members: int = 1) -> tuple[str, list[str]]:
    """Create a federation and members; return the secret of an invitation, and the tokens."""
    secret = hub.federation()
    return secret, [hub.enrol(secret, f"m{n}") for n in range(members)]


def serve(*options: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Try to start a hub that cannot start."""
    return subprocess.run(
        [sys.executable, "-m", "fedbo", "hub", "serve", *options],
        env=os.environ | {"PYTHONPATH": SOURCE} | environ,
        capture_output=True,
        text=True,
        timeout=120,
    )


def publication(sender: str, sequence: int = 1) -> dict[str, Any]:
    return {"content": message(sender, sequence).encode(), "headers": BINARY}


def answers(hub: HubProcess) -> bool:
    try:
        return hub.get("/healthz").is_success
    except httpx2.HTTPError:
        return False


def test_it_tells_where_it_is_and_what_to_do_next(hub: HubProcess) -> None:
    hub.wait_for(lambda: answers(hub))
    taken = serve("--port", str(hub.port), "--db", hub.db)
    assert taken.returncode == 1 and f"port {hub.port} of 127.0.0.1" in taken.stderr
    text = hub.log
    assert text.startswith(f"fedbo hub: http://127.0.0.1:{hub.port}\n")
    assert "fedbo hub create" in text
    settle(hub)
    assert hub.stop() == 0
    end = len(hub.log)
    hub.start()
    hub.wait_for(lambda: answers(hub))
    assert "yet" not in hub.log[end:]
    assert hub.stop(signal.SIGINT) == 0
    events = [line["event"] for line in hub.events()]
    assert [event for event in events if event != "request"] == ["started", "stopped"] * 2


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--host", "0.0.0.0"], "--tls-certificate"),
        (["--host", "192.0.2.1", "--plain"], "an address of this machine"),
        (["--tls-key", "key.pem"], "--tls-certificate and --tls-key"),
        (["--config", "none.toml"], "none.toml cannot be read"),
    ],
)
def test_what_cannot_work_is_said_before_anything_starts(
    options: list[str], expected: str, tmp_path: Path
) -> None:
    environ = {"FEDBO_HUB_DB": f"sqlite:///{tmp_path}/hub.db", "FEDBO_HUB_PORT": "0"}
    result = serve(*options, **environ)
    assert result.returncode in (1, 2), result.stderr
    assert expected in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_it_serves_with_tls(tmp_path: Path) -> None:
    made = certify(tmp_path)
    wrong = serve("--tls-certificate", str(made.certificate), "--tls-key", str(made.authority))
    assert wrong.returncode == 1 and "not a certificate and its private key" in wrong.stderr
    files = {"tls_certificate": made.certificate, "tls_key": made.key}
    with HubProcess(f"sqlite:///{tmp_path}/hub.db", host="0.0.0.0", **files) as hub:
        _, (token,) = settle(hub)
        assert hub.address == f"https://127.0.0.1:{hub.port}"
        trusted = ssl.create_default_context(cafile=str(made.authority))
        with hub.client(token, verify=trusted) as client:
            assert client.get(HERE).is_success
            answer = client.post("/v1/session", json={"token": token})
            assert answer.headers["set-cookie"].startswith("__Host-fedbo-session=")
            assert answer.headers["strict-transport-security"] == "max-age=86400"
        unknown = ssl.create_default_context()
        with hub.client(verify=unknown) as client, pytest.raises(httpx2.ConnectError):
            client.get("/healthz")


@pytest.mark.parametrize("proxies", ["", "127.0.0.1,10.0.0.0/8"])
def test_a_proxy_is_believed_only_if_it_is_trusted(proxies: str, tmp_path: Path) -> None:
    with HubProcess(f"sqlite:///{tmp_path}/hub.db", trusted_proxies=proxies) as hub:
        forged = {"X-Forwarded-For": "203.0.113.9, 192.0.2.1, 10.1.2.3"}
        with hub.client(new_token()) as client:
            assert client.get(HERE, headers=forged).status_code == 401
            secure = client.delete("/v1/session", headers={"X-Forwarded-Proto": "https"})
        assert ("strict-transport-security" in secure.headers) == bool(proxies)
        assert hub.stop() == 0
        addresses = [line["address"] for line in hub.events() if line["event"] == "request"]
        assert addresses[0] == ("192.0.2.1" if proxies else "127.0.0.1")


def test_no_secret_is_in_any_log_or_answer(hub: HubProcess) -> None:
    secret, tokens = settle(hub, 2)
    wrong = [new_token(), new_token(), new_secret()]
    secrets = {secret, *tokens, *wrong}
    with hub.client() as client:
        for bearer in (*tokens, *wrong):
            for method, path, given in (
                ("GET", HERE + "/audit", {}),
                ("GET", HERE + "/overview", {}),
                ("PUT", HERE + "/messages", {"content": b"nonsense " + tokens[0].encode()}),
                ("GET", HERE + "/messages", {"params": {"sender": tokens[0]}}),
                ("GET", f"/v1/federations/{tokens[0]}", {}),
                ("GET", f"/{tokens[1]}", {"params": {"token": tokens[1]}}),
                ("POST", "/v1/invitations/open", {"json": {"secret": secret, "name": 3}}),
                ("POST", "/v1/invitations/open", {"json": {"secret": [secret]}}),
                ("POST", "/v1/members", {"json": {"secret": secret, "name": "x", "token": bearer}}),
                ("POST", "/v1/session", {"content": tokens[1]}),
                ("POST", "/v1/session", {"json": {"token": [tokens[1]]}}),
                ("PATCH", f"/v1/{secret}", {}),
            ):
                headers = {"Authorization": f"Bearer {bearer}"}
                answer = client.request(method, path, headers=headers, **given)
                shown = answer.text + repr(answer.headers)
                assert not [each for each in secrets if each in shown], path
    assert hub.stop() == 0
    assert not [each for each in secrets if each in hub.log]
