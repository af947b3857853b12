"""What one member, or one address, can take away from the others."""

from __future__ import annotations

import contextlib
import os
import select as waits
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from hub.running import RunningHub
from hub.world import ACTOR, AGREED, World, message, news, problem, wanted
from sqlalchemy import insert, select, update

from fedbo.federation import Federation
from fedbo.hub import admin, schema, shell
from fedbo.hub.database import begin
from fedbo.hub.limits import Room
from fedbo.hub.problems import Refused

HERE = "/v1/federations/liver"


def settle(hub: RunningHub, agreed: Federation = AGREED) -> list[str]:
    """Create a federation with two members; return their tokens."""
    with begin(hub.engine) as connection:
        admin.create_federation(connection, "liver", agreed, actor=ACTOR)
        secret = admin.invite(connection, "liver", uses=2, actor=ACTOR).invitation.secret
        return [admin.enrol(connection, secret, name).token for name in ("a", "b")]


@pytest.fixture
def world(new_database: Callable[[str], str]) -> Iterator[World]:
    with World(new_database("sqlite")) as running:
        yield running


def belief(M: int) -> Federation:
    return Federation(AGREED.space, features=M, kind="belief", seed=3)


def put(token: str, size: int) -> bytes:
    """Return the head of a request that publishes so many bytes."""
    lines = f"host: x\r\nauthorization: Bearer {token}\r\ncontent-length: {size}\r\n\r\n"
    return f"PUT {HERE}/messages HTTP/1.1\r\n{lines}".encode()


@contextlib.contextmanager
def connections(hub: RunningHub, count: int, sent: bytes) -> Iterator[list[socket.socket]]:
    """Open connections that send something, and then wait."""
    with contextlib.ExitStack() as stack:
        made = []
        for _ in range(count):
            one = socket.create_connection(("127.0.0.1", hub.port), timeout=60.0)
            made.append(stack.enter_context(one))
            one.sendall(sent)
        yield made


def refused(waiting: list[socket.socket], count: int) -> list[bytes]:
    """Return so many answers with problems, and read only the beginning of others."""
    found: dict[socket.socket, bytes] = {}

    def problems() -> list[bytes]:  # a message may have a bracket where its beginning ends
        others = [answer for answer in found.values() if not answer.startswith(b"HTTP/1.1 200")]
        return [answer for answer in others if answer.endswith(b"}")]

    while len(problems()) < count:
        unread = [one for one in waiting if not found.get(one, b"").startswith(b"HTTP/1.1 200")]
        assert unread, "nothing is refused"
        for one in waits.select(unread, [], [], 60.0)[0]:
            found[one] = found.get(one, b"") + one.recv(1024)
    return problems()


def fill(hub: RunningHub, messages: int, size: int) -> None:
    """Put large messages into the database, whatever is in them."""
    with begin(hub.engine) as connection:
        member = schema.member.c
        found = select(member.federation, member.id).where(member.name == "b")
        federation, owner = connection.execute(found).one()
        for cursor in range(1, messages + 1):
            row = {"federation": federation, "member": owner, "epoch": 0, "sender": f"b/{cursor}"}
            row |= {
                "content": os.urandom(size),
                "sequence": 1,
                "t_n": 1,
                "is_out": True,
                "key": b"",
            }
            connection.execute(
                insert(schema.message).values(row | {"cursor": cursor, "changed": 0})
            )
        connection.execute(update(schema.federation).values(cursor=messages))


def peak(hub: RunningHub) -> float:
    """Return how many megabytes of memory the hub has had at most."""
    status = Path(f"/proc/{hub.process.pid}/status")
    if not status.exists():
        pytest.skip("this system has no /proc")
    lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return int(lines["VmHWM"].split()[0]) / 1024


# Large messages that arrive.


def test_uploads_that_do_not_arrive_take_no_room(hub: RunningHub) -> None:
    a, b = settle(hub, belief(3000))
    with connections(hub, 16, put(a, 18_000_000) + b"x"), hub.client(b) as client:
        assert client.get(HERE + "/member").is_success
        answer = client.put(HERE + "/messages", content=bytes(100_000))
        assert problem(answer) == "wrong-message"


def test_a_member_has_a_share_of_the_room_and_one_body_may_be_larger() -> None:
    room = Room(10_000_000, share=3_000_000)
    with room.hold("a") as first, room.hold("a") as second, room.hold("b") as other:
        first.take(2_000_000)
        first.take(2_000_000)  # it is the only one
        with pytest.raises(Refused, match="3,000,000 bytes") as refused:
            second.take(100_000)
        assert refused.value.slug == "too-many-requests" and refused.value.retry_after
        second.take(10_000)  # it is small
        other.take(5_900_000)
        with pytest.raises(Refused, match="try again") as refused:
            other.take(100_000)
        assert refused.value.slug == "not-ready" and refused.value.retry_after
    assert (room.taken, room.taken_of) == (0, {})


# Large answers that are not taken.


@pytest.fixture
def unlimited(tmp_path: Path, new_database: Callable[[str], str]) -> Iterator[RunningHub]:
    """A hub that does not count requests a second."""
    with RunningHub(tmp_path, new_database("sqlite"), "--rate", "0") as running:
        yield running


@pytest.mark.parametrize(
    "asked",
    [
        f"POST {HERE}/fetch HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\nauthorization: Bearer %b"
        "\r\n\r\n\x92\x00\xa0",
        f"GET {HERE}/messages HTTP/1.1\r\nhost: x\r\nauthorization: Bearer %b\r\n\r\n",
    ],
    ids=["fetch", "list"],
)
def test_answers_that_one_member_does_not_take_are_few(unlimited: RunningHub, asked: str) -> None:
    hub = unlimited
    a, b = settle(hub)
    fill(hub, messages=16, size=2**20)
    with hub.client(b) as client:
        every = news(client.post(HERE + "/fetch", **wanted()))
        assert [len(one.content) for one in every.handed] == [2**20] * 16
        before = peak(hub)
        with connections(hub, 30, 2 * (asked.encode("latin1") % a.encode())) as waiting:
            answers = refused(waiting, 26)
            assert all(b" 429 " in one and b"retry-after: 2\r\n" in one for one in answers)
            assert len(news(client.post(HERE + "/fetch", **wanted())).handed) == 16
        assert peak(hub) - before < 300.0
    hub.wait_for(lambda: hub.get(HERE + "/messages", a).is_success)


def test_a_large_answer_is_the_same_in_pieces(hub: RunningHub) -> None:
    a, _ = settle(hub)
    fill(hub, messages=3, size=100_000)
    with hub.client(a) as client:
        for coding in ("zstd", "identity"):
            client.headers["accept-encoding"] = coding
            listed = client.get(HERE + "/messages")
            assert len(msgspec.msgpack.decode(listed.content)) == 3
            fetched = client.post(HERE + "/fetch", **wanted())
            assert int(fetched.headers["content-length"]) > 300_000
            assert {len(one.content) for one in news(fetched).handed} == {100_000}


def test_messages_that_are_too_large_together_are_not_listed_all(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = world.federation("liver")
    token = world.enrol(secret, "a")
    for i in range(3):
        world.ask("PUT", HERE + "/messages", token, content=message(f"a/{i}").encode())
    size = len(message("a/0").encode())
    monkeypatch.setattr("fedbo.hub.api.messages.ANSWER_BYTES", 2 * size)
    listed = msgspec.msgpack.decode(world.ask("GET", HERE + "/messages", token).content)
    assert [content for _, content in listed] == [message(f"a/{i}").encode() for i in (2, 1)]


# Requests that run at the same time.


def test_slow_requests_of_one_member_leave_the_others_theirs(hub: RunningHub) -> None:
    a, b = settle(hub)
    with connections(hub, 40, put(a, 300) + b"x") as slow, hub.client(b) as client:
        answers = refused(slow, 8)
        assert all(b" 429 " in one and b"retry-after: 1\r\n" in one for one in answers)
        assert all(b"of this member" in one for one in answers)
        assert client.get(HERE + "/member").is_success
    hub.wait_for(lambda: hub.get(HERE + "/member", a).is_success)


def test_slow_requests_of_one_address_leave_other_addresses_theirs(
    tmp_path: Path, new_database: Callable[[str], str]
) -> None:
    """An invitation need not be right to send its body slowly."""
    proxy = "--trusted-proxies", "127.0.0.1"
    with RunningHub(tmp_path, new_database("sqlite"), *proxy, "--rate", "0") as hub:
        head = b"POST /v1/members HTTP/1.1\r\nhost: x\r\nx-forwarded-for: 192.0.2.1\r\n"
        with connections(hub, 140, head + b"content-length: 300\r\n\r\nx") as slow:
            answers = refused(slow, 12)
            assert all(b" 429 " in one and b"retry-after: 1\r\n" in one for one in answers)
            assert all(b"from this address" in one for one in answers)
            with hub.client() as client:
                client.headers["x-forwarded-for"] = "192.0.2.1"
                assert problem(client.get("/v1/hub")) == "too-many-requests"
                assert client.get("/healthz").is_success and client.get("/readyz").is_success
            assert hub.get("/v1/hub").is_success


def test_a_worker_that_is_full_is_still_healthy(world: World) -> None:
    at_once = world.service.at_once
    while at_once.enter(None, shell.MOST_AT_ONCE):
        pass
    assert problem(world.ask("GET", "/v1/hub")) == "not-ready"
    assert world.ask("GET", "/healthz").is_success and world.ask("GET", "/readyz").is_success
    at_once.leave(None)
    assert all(world.ask("GET", "/v1/hub").is_success for _ in range(3))
    assert at_once._counts == {None: shell.MOST_AT_ONCE - 1}
