"""A hub as a process: how it starts, what it takes from the network, and how it stops."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hub.running import SOURCE, RunningHub
from hub.world import ACTOR, AGREED, key_given, message, news, problem, scalars, wanted
from sqlalchemy import select

from fedbo.exchange.hub.memberships import Invitation
from fedbo.hub import admin, schema
from fedbo.hub.database import begin
from fedbo.hub.tokens import new_secret, new_token
from fedbo.identity import KeyPair

HERE = "/v1/federations/liver"


def settle(hub: RunningHub, members: int = 1) -> tuple[str, str, list[str]]:
    """Create an operator, a federation and members; return the tokens and a secret."""
    with begin(hub.engine) as connection:
        operator = admin.new_operator(connection, "ann", actor=ACTOR)
        admin.create_federation(connection, "liver", AGREED, actor=ACTOR)
        secret = admin.invite(connection, "liver", uses=1000, actor=ACTOR).invitation.secret
        names = [f"m{i}" for i in range(members)]
        return operator, secret, [admin.enrol(connection, secret, name).token for name in names]


def serve(*options: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Try to start a hub that cannot start."""
    return subprocess.run(
        [sys.executable, "-m", "fedbo", "hub", "serve", *options],
        env=os.environ | {"PYTHONPATH": SOURCE} | environ,
        capture_output=True,
        text=True,
        timeout=120,
    )


def raw(hub: RunningHub, *pieces: bytes) -> bytes:
    """Send bytes, and return all that comes back until the hub closes the connection."""
    with socket.create_connection(("127.0.0.1", hub.port), timeout=60.0) as connection:
        for piece in pieces:
            connection.sendall(piece)
        found = b""
        with contextlib.suppress(ConnectionError):
            while part := connection.recv(65536):
                found += part
        return found


def workers(hub: RunningHub) -> list[int]:
    """Return the processes that have started, those that ended included."""
    lines = [json.loads(line) for line in hub.log().splitlines() if line.endswith("}")]
    return [line["process"] for line in lines if line["event"] == "started"]


def of_process(pid: int, what: str) -> str:
    """Return what the system tells about a process."""
    if not Path("/proc/self").exists():
        pytest.skip("this system has no /proc")
    return Path(f"/proc/{pid}/{what}").read_text()


def is_running(pid: int) -> bool:
    try:
        return of_process(pid, "stat").rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def body_of(answer: bytes) -> dict[str, Any]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head
    document: dict[str, Any] = json.loads(body)
    return document


def test_it_tells_where_it_is_and_what_to_do_next(hub: RunningHub) -> None:
    assert hub.get("/v1/hub").json()["name"] == "fedbo hub"
    text = hub.output()
    assert text.startswith(f"fedbo hub: http://127.0.0.1:{hub.port}\n")
    assert "no operator yet: fedbo hub operator add" in text
    assert "no federation yet: fedbo hub create" in text
    settle(hub)
    assert hub.stop() == 0
    hub.start()
    assert "yet" not in hub.output()
    assert hub.stop(signal.SIGINT) == 0
    lines = [json.loads(line) for line in hub.log().splitlines()]
    assert [line["event"] for line in lines if line["event"] != "request"] == [
        "started",
        "stopped",
    ] * 2


def test_a_password_is_nowhere_to_be_seen(tmp_path: Path, postgresql_server: str) -> None:
    with_password = postgresql_server.replace("postgres:@", "postgres:s3cret-word@")
    with RunningHub(tmp_path, with_password, "--workers", "2") as hub:
        assert hub.get("/readyz").is_success
        hub.wait_for(lambda: len(workers(hub)) == 2)
        commands = [of_process(pid, "cmdline") for pid in (hub.process.pid, *workers(hub))]
        assert all("python" in command for command in commands)
        assert "s3cret-word" not in "".join(commands)
        assert hub.stop() == 0
        assert "s3cret-word" not in hub.output() + hub.log()
        assert "***" in hub.output()


@pytest.mark.parametrize(
    ("options", "environ", "expected"),
    [
        (["--host", "0.0.0.0"], {}, "--tls-certificate"),
        (["--host", "192.0.2.1", "--plain"], {}, "not an address of this machine"),
        (["--host", "no.such.host.invalid", "--plain"], {}, "not an address of this machine"),
        (["--tls-key", "key.pem"], {}, "without --tls-certificate"),
        (["--tls-certificate", "none.pem", "--tls-key", "key.pem"], {}, "none.pem cannot be read"),
        (["--port", "99999"], {}, "expected 0 to 65535"),
        ([], {"FEDBO_HUB_WORKES": "2"}, "did you mean FEDBO_HUB_WORKERS?"),
        (["--config", "none.toml"], {}, "none.toml cannot be read"),
        (["--db", "mysql://x/y"], {}, "expected sqlite:///FILE"),
    ],
)
def test_what_cannot_work_is_said_before_anything_starts(
    options: list[str], environ: dict[str, str], expected: str, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/hub.db"
    result = serve(*options, **{"FEDBO_HUB_DB": url, "FEDBO_HUB_PORT": "0"} | environ)
    assert result.returncode in (1, 2), result.stderr
    assert expected in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_a_taken_port_is_named(hub: RunningHub, tmp_path: Path) -> None:
    for workers in ("1", "2"):
        result = serve(
            "--port", str(hub.port), "--workers", workers, "--db", f"sqlite:///{tmp_path}/2.db"
        )
        assert result.returncode == 1
        assert f"port {hub.port} of 127.0.0.1 is taken" in result.stderr


# Certificates.


class Certificates:
    """A throw-away certificate authority, and certificates for 127.0.0.1."""

    def __init__(self, folder: Path) -> None:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import NameOID

        now = datetime.datetime.now(datetime.UTC)

        def build(name: str, key: Any, issuer: Any, signer: Any, *more: Any) -> Any:
            subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
            builder = (
                x509.CertificateBuilder()
                .subject_name(subject)
                .issuer_name(issuer or subject)
                .public_key(key.public_key())
                .serial_number(x509.random_serial_number())
                .not_valid_before(now - datetime.timedelta(days=1))
                .not_valid_after(now + datetime.timedelta(days=1))
            )
            for extension in more:
                builder = builder.add_extension(extension, critical=False)
            return builder.sign(signer, hashes.SHA256())

        def write(name: str, data: bytes) -> str:
            (folder / name).write_bytes(data)
            return str(folder / name)

        pem = serialization.Encoding.PEM
        authority, key, other = (ec.generate_private_key(ec.SECP256R1()) for _ in range(3))
        ca = build("ca", authority, None, authority, x509.BasicConstraints(True, None))
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        leaf = build("hub", key, ca.subject, authority, names)
        form = serialization.PrivateFormat.PKCS8
        unlocked = serialization.NoEncryption()
        locked = serialization.BestAvailableEncryption(b"password")
        self.authority = write("ca.pem", ca.public_bytes(pem))
        self.certificate = write("hub.pem", leaf.public_bytes(pem))
        self.key = write("key.pem", key.private_bytes(pem, form, unlocked))
        self.other = write("other.pem", other.private_bytes(pem, form, unlocked))
        self.locked = write("locked.pem", key.private_bytes(pem, form, locked))


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


def test_it_serves_with_tls(tmp_path: Path, certificates: Certificates) -> None:
    files = ["--tls-certificate", certificates.certificate, "--tls-key", certificates.key]
    url = f"sqlite:///{tmp_path}/hub.db"
    with RunningHub(tmp_path, url, *files, "--host", "0.0.0.0") as hub:
        operator, _, _ = settle(hub)
        assert hub.address == f"https://127.0.0.1:{hub.port}"
        trusted = ssl.create_default_context(cafile=certificates.authority)
        with hub.client(operator, verify=trusted) as client:
            assert client.get(HERE).is_success
            answer = client.post("/v1/session", json={"token": operator})
            assert "Secure" in answer.headers["set-cookie"]
            assert answer.headers["set-cookie"].startswith("__Host-fedbo-session=")
            assert answer.headers["strict-transport-security"] == "max-age=86400"
            secret = answer.cookies["__Host-fedbo-session"]
            client.headers.pop("authorization")
            client.cookies.clear()
            for name, role in (("__Host-fedbo-session", "operator"), ("fedbo-session", None)):
                who = client.get("/v1/session", headers={"cookie": f"{name}={secret}"})
                assert who.json()["role"] == role
        unknown = ssl.create_default_context()
        with hub.client(verify=unknown) as client, pytest.raises(httpx.ConnectError):
            client.get("/v1/hub")
        assert hub.stop() == 0


def test_wrong_certificates_are_named(tmp_path: Path, certificates: Certificates) -> None:
    for certificate, key, expected in (
        (certificates.certificate, certificates.other, "is not the private key"),
        (certificates.certificate, certificates.locked, "without a password"),
        (certificates.key, certificates.key, "are not a certificate and its private key"),
    ):
        result = serve(
            *("--tls-certificate", certificate, "--tls-key", key, "--port", "0"),
            FEDBO_HUB_DB=f"sqlite:///{tmp_path}/x.db",
        )
        assert result.returncode == 1
        assert expected in " ".join(result.stderr.split())


# What comes from the network.


def test_bodies_that_are_too_large_or_too_slow_and_what_is_not_http(hub: RunningHub) -> None:
    _, _, (token,) = settle(hub)
    with hub.client(token) as client:
        large = client.put(HERE + "/messages", content=bytes(2_000_000))
        assert (large.status_code, problem(large)) == (413, "too-large")
        chunked = client.put(HERE + "/messages", content=iter([bytes(1000)] * 1000))
        assert (chunked.status_code, problem(chunked)) == (413, "too-large")
        wide = client.put(HERE + "/progress", json={"sender": "x" * 70_000, "trials": 1})
        assert problem(wide) == "too-large"
        assert client.get(HERE).is_success
    assert body_of(raw(hub, b"nonsense\r\n\r\n"))["status"] == 400
    upgrade = b"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-key: x\r\n\r\n"
    assert raw(hub, b"GET /v1/hub HTTP/1.1\r\n" + upgrade).startswith(b"HTTP/1.1 200")
    long = b"GET / HTTP/1.1\r\nx: "
    assert body_of(raw(hub, long, *[b"a" * 10_000] * 40))["status"] == 413
    slow: dict[str, bytes] = {}

    def send(name: str, data: bytes) -> None:
        slow[name] = raw(hub, data)

    head = f"PUT {HERE}/messages HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n"
    threads = [
        threading.Thread(target=send, args=given)
        for given in (
            ("head", b"GET / HTTP/1.1\r\nhost"),
            ("body", head.encode() + b"content-length: 100\r\n\r\nabc"),
            ("chunks", head.encode() + b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n"),
        )
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, answer in slow.items():
        assert body_of(answer)["type"] == "/problems/too-slow", name
    assert hub.get(HERE, token).is_success
    assert hub.stop() == 0
    lines = [json.loads(line) for line in hub.log().splitlines()]
    found = [line for line in lines if line["event"] == "request" and "method" not in line]
    assert sorted(line["status"] for line in found) == [400, 408, 413]
    assert all(line["address"] == "127.0.0.1" and line["request"] for line in found)


def test_a_proxy_is_believed_only_if_it_is_trusted(
    tmp_path: Path, new_database: Callable[[str], str]
) -> None:
    seen: dict[str, list[str]] = {}
    for proxies in ("", "127.0.0.1,10.0.0.0/8"):
        options = ["--trusted-proxies", proxies] if proxies else []
        with RunningHub(tmp_path, new_database("sqlite"), "--failures", "2", *options) as hub:
            with hub.client(new_token("operator")) as client:
                statuses = []
                for first in ("192.0.2.1", "192.0.2.2", "192.0.2.3"):
                    forged = f"203.0.113.9, {first}, 10.1.2.3"
                    answer = client.get(HERE, headers={"X-Forwarded-For": forged})
                    statuses.append(answer.status_code)
                again = client.get(HERE, headers={"X-Forwarded-For": "192.0.2.3"})
                third = client.get(HERE, headers={"X-Forwarded-For": "192.0.2.3"})
                secure = client.delete("/v1/session", headers={"X-Forwarded-Proto": "https"})
            assert hub.stop() == 0
            lines = [json.loads(line) for line in hub.log().splitlines()]
            seen[proxies] = [line["address"] for line in lines if line["event"] == "request"]
        if proxies:
            assert statuses == [401, 401, 401]
            assert (again.status_code, third.status_code) == (401, 429)
            assert "Secure" in secure.headers["set-cookie"]
            assert "strict-transport-security" in secure.headers
        else:
            assert statuses == [401, 401, 429]
            assert secure.headers["set-cookie"].startswith("fedbo-session=")
            assert "Secure" not in secure.headers["set-cookie"]
            assert "strict-transport-security" not in secure.headers
        (tmp_path / "hub.err").unlink()
    assert set(seen[""]) == {"127.0.0.1"}
    assert seen["127.0.0.1,10.0.0.0/8"][:3] == ["192.0.2.1", "192.0.2.2", "192.0.2.3"]


def test_a_flood_is_answered_with_429_and_when_to_come_back(
    tmp_path: Path, new_database: Callable[[str], str]
) -> None:
    with RunningHub(tmp_path, new_database("sqlite"), "--rate", "2") as hub:
        _, _, tokens = settle(hub, 2)
        with hub.client(tokens[0]) as client:
            answers = [client.get(HERE + "/member") for _ in range(40)]
        refused = [one for one in answers if one.status_code == 429]
        assert refused and answers[0].is_success
        assert all(problem(one) == "too-many-requests" for one in refused)
        assert all(int(one.headers["retry-after"]) >= 1 for one in refused)
        assert hub.get(HERE + "/member", tokens[1]).is_success


# Several workers, and the end.


@contextlib.contextmanager
def publishing(hub: RunningHub, tokens: list[str]) -> Iterator[dict[str, int]]:
    """Publish as fast as possible, and keep what was acknowledged."""
    acknowledged: dict[str, int] = {}
    is_over = threading.Event()

    def run(name: str, token: str) -> None:
        sequence = 0
        with hub.client(token) as client:
            while not is_over.is_set():
                sequence += 1
                sent = message(name, sequence).encode()
                with contextlib.suppress(httpx.HTTPError):
                    answer = client.put(HERE + "/messages", content=sent)
                    assert answer.status_code in (200, 503), answer.text
                    if answer.status_code == 200:
                        acknowledged[name] = sequence

    threads = [
        threading.Thread(target=run, args=(f"m{i}", token)) for i, token in enumerate(tokens)
    ]
    for thread in threads:
        thread.start()
    try:
        yield acknowledged
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_graceful_stop_under_load_loses_nothing(
    workers: str, tmp_path: Path, database_url: str
) -> None:
    options = ["--workers", workers, "--rate", "0"]
    with RunningHub(tmp_path, database_url, *options) as hub:
        _, _, tokens = settle(hub, 6)
        with publishing(hub, tokens) as acknowledged:
            hub.wait_for(lambda: len(acknowledged) == 6)
            assert hub.stop() == 0
        rows = select(schema.message.c.sender, schema.message.c.sequence)
        with hub.engine.connect() as connection:
            stored = {sender: sequence for sender, sequence in connection.execute(rows)}
        assert all(stored[name] >= sequence for name, sequence in acknowledged.items())
        lines = [json.loads(line) for line in hub.log().splitlines()]
        events = [line["event"] for line in lines if line["event"] != "request"]
        assert sorted(events) == ["started"] * int(workers) + ["stopped"] * int(workers)
        assert not any(line.get("status") == 500 for line in lines)


def test_a_request_in_flight_is_answered_before_the_end(hub: RunningHub) -> None:
    _, _, (token,) = settle(hub)
    content = message("m0").encode()
    head = (
        f"PUT {HERE}/messages HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n"
        f"content-length: {len(content)}\r\nexpect: 100-continue\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", hub.port), timeout=60.0) as connection:
        connection.sendall(head.encode())
        assert connection.recv(65536).startswith(b"HTTP/1.1 100")  # it waits for the body
        hub.process.send_signal(signal.SIGTERM)
        hub.wait_for(lambda: not _answers(hub))
        connection.sendall(content)
        answer = b""
        while part := connection.recv(65536):
            answer += part
    assert answer.startswith(b"HTTP/1.1 200") and answer.endswith(b'{"out":true}')
    assert hub.process.wait(60) == 0


def test_workers_share_the_work_and_one_that_dies_is_replaced(
    tmp_path: Path, new_database: Callable[[str], str]
) -> None:
    with RunningHub(tmp_path, new_database("sqlite"), "--workers", "2", "--rate", "0") as hub:
        operator, _, tokens = settle(hub, 2)

        hub.wait_for(lambda: len(workers(hub)) == 2)
        for i in range(40):  # each with a connection of its own
            with hub.client(tokens[i % 2]) as client:
                sent = client.put(HERE + "/messages", content=message(f"m{i % 2}", i + 1).encode())
                assert sent.json() == {"out": True}
                assert len(news(client.post(HERE + "/fetch", **wanted())).handed) == min(i + 1, 2)
        text = hub.get("/metrics", operator).text
        assert "fedbo_hub_messages_published_total 40.0" in text
        os.kill(workers(hub)[0], signal.SIGKILL)
        hub.wait_for(lambda: len(workers(hub)) == 3)
        hub.wait_for(lambda: all(_answers(hub) for _ in range(10)))
        assert hub.stop() == 0


def _answers(hub: RunningHub) -> bool:
    try:
        return hub.get("/healthz").is_success
    except httpx.HTTPError:
        return False


def test_workers_end_when_their_parent_is_killed_and_the_port_is_free_again(
    tmp_path: Path, new_database: Callable[[str], str]
) -> None:
    with RunningHub(tmp_path, new_database("sqlite"), "--workers", "2") as hub:
        hub.wait_for(lambda: len(workers(hub)) == 2)
        orphans = workers(hub)
        hub.process.kill()
        hub.process.wait()
        hub.start()
        assert hub.get("/v1/hub").is_success
        hub.wait_for(lambda: not any(map(is_running, orphans)))
        assert hub.stop() == 0


def test_no_secret_is_in_any_log_error_or_answer(hub: RunningHub) -> None:
    """Every endpoint is used, rightly and wrongly; then everything that came out is searched."""
    operator, secret, tokens = settle(hub, 3)
    secrets, answers = {operator, secret, *tokens}, []

    def ask(method: str, path: str, token: str | None = None, **given: Any) -> httpx.Response:
        with hub.client(token) as client:
            answer = client.request(method, path, **given)
        answers.append(answer)
        return answer

    keys = KeyPair.generate()
    made = ask("POST", HERE + "/invitations", operator, json={"uses": 3}).json()
    shown = {made["invitation"]}
    secrets.add(Invitation.parse(made["invitation"]).secret)
    proved = key_given("enrol", "new", secret, keys)
    refused = [
        ask("POST", "/v1/members", json={"secret": secret, "name": "x", **proved}),
        ask("PUT", HERE + "/member/key", tokens[1], json=key_given("rekey", "x", tokens[1], keys)),
    ]
    assert [problem(answer) for answer in refused] == ["wrong-signature"] * 2
    enrolled = ask("POST", "/v1/members", json={"secret": secret, "name": "new", **proved})
    rotated = ask("POST", HERE + "/member/token", tokens[2])
    secrets |= {enrolled.json()["token"], rotated.json()["token"]}
    shown |= {enrolled.json()["token"], rotated.json()["token"]}
    login = ask("POST", "/v1/session", json={"token": operator})
    cookie = login.cookies["fedbo-session"]
    secrets.add(cookie)
    headers = {"cookie": f"fedbo-session={cookie}", "x-fedbo": "1"}
    wrong = [new_token("operator"), new_token("member"), new_secret(), "fedbo-m-short"]
    secrets |= set(wrong[:3])
    for bearer in (operator, tokens[0], tokens[2], None, *wrong):
        for method, path, given in (
            ("GET", "/v1/hub", {}),
            ("GET", "/v1/session", {}),
            ("GET", "/v1/federations", {}),
            ("GET", HERE, {}),
            ("GET", HERE + "/members", {}),
            ("GET", HERE + "/member", {}),
            ("GET", HERE + "/audit", {}),
            ("GET", HERE + "/overview", {}),
            ("GET", HERE + "/invitations", {}),
            ("GET", "/v1/audit", {}),
            ("GET", "/metrics", {}),
            ("GET", "/", {}),
            ("GET", "/docs", {}),
            ("GET", "/openapi.json", {}),
            ("PUT", HERE + "/messages", {"content": message("m0").encode()}),
            ("PUT", HERE + "/messages", {"content": b"nonsense " + tokens[0].encode()}),
            ("PUT", HERE + "/scalars", {"content": scalars("m0").encode()}),
            ("POST", HERE + "/fetch", wanted()),
            ("GET", HERE + "/messages", {"params": {"sender": tokens[0]}}),
            ("PUT", HERE + "/progress", {"json": {"sender": "m0", "trials": 3}}),
            ("GET", f"/v1/federations/{tokens[0]}", {}),
            ("GET", f"/{operator}", {"params": {"token": operator}}),
            ("POST", "/v1/invitations/open", {"json": {"secret": secret, "name": 3}}),
            ("POST", "/v1/invitations/open", {"json": {"secret": [secret]}}),
            ("POST", "/v1/members", {"json": {"secret": secret, "name": "x", "token": operator}}),
            ("POST", "/v1/session", {"content": operator}),
            ("POST", "/v1/session", {"json": {"token": [operator]}}),
            ("PATCH", f"/v1/{secret}", {}),
        ):
            ask(method, path, bearer, **given)
    ask("GET", HERE, headers=headers)
    ask("GET", HERE + "/audit", headers=headers)
    ask("DELETE", "/v1/session", headers=headers)
    ask("GET", HERE, headers=headers)
    raw(hub, f"GET /{secret} HTTP/9.9\r\nauthorization: Bearer {operator}\r\n\r\n".encode())
    assert hub.stop() == 0
    once = [answer for answer in answers if answer.status_code in (200, 201)]
    for answer in answers:
        text = answer.text + json.dumps(
            [pair for pair in answer.headers.multi_items() if pair[0] != "set-cookie"]
        )
        for one in secrets:
            is_meant = any(one in word for word in shown) and answer in once[:3]
            assert is_meant or one not in text, answer.request.url.path
    written = hub.log() + hub.output()
    assert not [one for one in secrets if one in written]
    assert written.count('"request"') >= len(answers)
