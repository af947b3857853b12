"""What one member, or one address, can take away from the others."""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hub.running import RunningHub
from hub.world import ACTOR, AGREED, World, problem

from fedbo.federation import Federation
from fedbo.hub import admin, shell
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
    """Return the first answers with problems."""
    found: dict[socket.socket, bytes] = {}
    while sum(answer.endswith(b"}") for answer in found.values()) < count:
        for one in select.select(waiting, [], [], 60.0)[0]:
            found[one] = found.get(one, b"") + one.recv(65536)
    return list(found.values())


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
