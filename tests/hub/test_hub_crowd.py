"""What one member, or one address, can take away from the others."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest
from hub.running import RunningHub
from hub.world import ACTOR, AGREED, problem

from fedbo.federation import Federation
from fedbo.hub import admin
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


