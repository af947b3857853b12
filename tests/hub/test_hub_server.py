"""A hub as a process: how it starts, what it tells, and how it stops."""

from __future__ import annotations

import os
import resource
import signal
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from contracts.authority import certify
from contracts.hub import SOURCE, HubProcess
from contracts.hub_rows import message
from hub.world import BINARY, HERE, newcomer, problem

from fedbo.exchange.hub.wire import News, Wanted
from fedbo.federation import Federation
from fedbo.hub import store
from fedbo.hub.service import MOST_UNFINISHED
from fedbo.hub.store import schema
from fedbo.hub.store.credentials import new_secret, new_token
from fedbo.space import Float


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
    taken = serve("--port", "0", "--db", hub.db, "--metrics", f"127.0.0.1:{hub.port}")
    assert taken.returncode == 1 and "choose another port" in " ".join(taken.stderr.split())
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


def test_slow_strangers_do_not_keep_members_out(hub: HubProcess) -> None:
    """Unfinished bodies have a limit in number and time; of unfinished heads there may be many."""
    secret, (token,) = settle(hub)
    head = b"POST /v1/members HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"
    strangers = [socket.create_connection(("127.0.0.1", hub.port)) for _ in range(MOST_UNFINISHED)]
    for each in strangers:
        each.sendall(head)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    half = [socket.create_connection(("127.0.0.1", hub.port)) for _ in range(1100)]
    for each in half:
        each.sendall(head[:40])

    def enrol() -> httpx2.Response:
        with hub.client() as client:
            return client.post("/v1/members", json=newcomer(secret, "new"))

    def is_full() -> bool:
        with hub.client() as client:
            opened = client.post("/v1/invitations/open", json={"secret": secret})
        return opened.status_code == 503

    hub.wait_for(is_full)
    refused = enrol()
    assert problem(refused) == "busy" and refused.headers["retry-after"] == "1"
    assert refused.headers["connection"] == "close"
    with hub.client(token) as client:
        assert client.put(HERE + "/messages", **publication("m0")).json() == {"out": True}
    with strangers[0].makefile("rb") as stranger:
        answer = stranger.read()  # all of it, after so many seconds
    assert b" 408 " in answer.split(b"\r\n")[0] and b"too-slow" in answer
    hub.wait_for(lambda: enrol().status_code == 201)
    for each in (*strangers, *half):
        each.close()
    assert 503 in {line.get("status") for line in hub.events()}


def test_answers_that_nobody_reads_have_a_limit(tmp_path: Path) -> None:
    agreed = Federation({"x": Float(0, 1)}, features=3000, kind="weights")
    count, size = 1024, 4 * 3000
    with HubProcess(f"sqlite:///{tmp_path}/hub.db") as hub:
        secret = hub.federation("large", agreed)
        tokens = [hub.enrol(secret, f"m{n}") for n in range(12)]
        place = {"federation": 1, "member": 1, "key": b"?", "sequence": 1, "t_n": 1}
        made = {"is_out": True, "content": bytes(size), "changed": 0.0}
        rows = [{**place, **made, "sender": f"m0/{n}", "cursor": n + 1} for n in range(count)]
        with store.begin(hub.engine) as connection:
            connection.execute(schema.message.insert(), rows)
            store.take_cursors(connection, 1, count)
        body = msgspec.msgpack.encode(Wanted())
        before = memory(hub.process.pid)
        readers = []
        for token in tokens * 5:
            reader = socket.create_connection(("127.0.0.1", hub.port))
            reader.sendall(
                f"POST /v1/federations/large/fetch HTTP/1.1\r\nHost: x\r\n"
                f"Authorization: Bearer {token}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
                + body
            )
            readers.append(reader)
        done = [reader.recv(12) for reader in readers]
        assert {b"HTTP/1.1 200", b"HTTP/1.1 503"} == {*done}
        held = memory(hub.process.pid) - before
        print(f"{len(readers)} unread answers of {count * size / 1e6:.0f} MB: {held / 1e6:.0f} MB")
        assert held < 250e6
        for reader in readers:
            reader.close()
        with hub.client(tokens[0]) as client:

            def fetch() -> httpx2.Response:
                return client.post("/v1/federations/large/fetch", content=body, headers=BINARY)

            hub.wait_for(lambda: fetch().status_code == 200)
            news = msgspec.msgpack.decode(fetch().content, type=News)
        assert len(news.handed) == count


def memory(pid: int) -> int:
    """Return how many bytes a process has in memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


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
