"""The client of a hub: retries, limits, and hubs that lie."""

from __future__ import annotations

import gzip
import json
import math
import os
import random
import sys
import time
from collections.abc import Callable, Iterator

import msgspec
import numpy as np
import pytest
from contracts.exchange import (
    OTHERS,
    OURS,
    child,
    ended,
    heard,
    message,
    sequences,
    unwarned,
    withdrawal,
)
from contracts.liar import PROBLEM, Answer, Liar, Request, free_port

from fedbo import Federation, Message
from fedbo.errors import HubRefused, NotSent, StrangeAnswer
from fedbo.exchange import ExchangeError, ExchangeWarning, Ledger
from fedbo.exchange.hub import client as client_module
from fedbo.exchange.hub.client import Client
from fedbo.exchange.hub.exchange import HubExchange
from fedbo.exchange.hub.member import enrol
from fedbo.exchange.hub.memberships import HubUrl, Invitation, Membership, Memberships
from fedbo.exchange.hub.wire import Handed, News
from fedbo.federation import Plan
from fedbo.federation.shared import Shared
from fedbo.message.message import MOST_PEERS
from fedbo.testing.keys import keys_of, new_keys
from fedbo.testing.parties import PLANE

TOKEN = "fedbo-m-" + "t0kEn" * 8 + "abc"


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Nobody sleeps; the clock of the client goes on by as much as it would have."""
    taken: list[float] = []
    monotonic = time.monotonic

    class Clock:
        time = staticmethod(time.time)

        @staticmethod
        def monotonic() -> float:
            return monotonic() + sum(taken)

    monkeypatch.setattr(client_module, "time", Clock)
    monkeypatch.setattr(client_module, "_sleep", taken.append)
    return taken


def one_after_another(*answers: Answer) -> Callable[[Request], Answer]:
    """The answers in their order; the last one again and again."""
    left = [*answers]
    return lambda _: left.pop(0) if len(left) > 1 else left[0]


OK = Answer(200, b'{"a": 1}')


# Addresses


@pytest.mark.parametrize(
    "address",
    [
        "https://user:secret@hub.example.org",
        "https://hub.example.org:99999",
        "https://hub.example.org/a/b",
        "https://hub.example.org/?x=1",
        "https://hub.example\n.org",
        "https://[::1",
        "https://" + "x" * 600,
        "http://127.0.0.1.example.org",
        "http://10.0.0.1",
    ],
)
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(ExchangeError) as caught:
        HubUrl.parse(address)
    assert "secret" not in str(caught.value)
    assert str(caught.value).isprintable() and len(str(caught.value)) < 500


# Retries


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_hub_is_asked_again_when_it_says(status: int, pauses: list[float]) -> None:
    later = Answer(status, headers={"Retry-After": "3"})
    at_once = Answer(status, headers={"Retry-After": "0"})
    with Liar(one_after_another(later, at_once, OK)) as hub:
        assert Client(hub.address).send("POST", "/v1/members", b"{}") == OK.content
        assert [one.content for one in hub.asked] == [b"{}"] * 3
    assert pauses == [3.0, 1.0]


@pytest.mark.parametrize("after", ["", "60", "soon", "-1", "1.5", "\u00b2", "9" * 5000])
def test_a_busy_hub_that_gives_no_time_within_the_deadline_is_not_asked_again(
    after: str, pauses: list[float]
) -> None:
    with Liar(one_after_another(Answer(503, headers={"Retry-After": after}), OK)) as hub:
        client = Client(hub.address)
        with pytest.raises(HubRefused, match="status 503"):
            client.send("GET", "/v1/hub")
    assert pauses == []


def test_a_busy_hub_is_not_asked_beyond_the_deadline(pauses: list[float]) -> None:
    with Liar(lambda _: Answer(429, headers={"Retry-After": "4"})) as hub:
        with pytest.raises(HubRefused, match="status 429"):
            Client(hub.address).send("GET", "/v1/hub")
        assert len(hub.asked) == len(pauses) + 1
    assert client_module.BUDGET - 5 < sum(pauses) < client_module.BUDGET


def test_nothing_else_is_sent_twice(pauses: list[float]) -> None:
    cut = Answer(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
    after = {"Retry-After": "1"}
    for answer in (cut, Answer(raw=b""), Answer(502, headers=after), Answer(504, headers=after)):
        with Liar(one_after_another(answer, OK)) as hub:
            with pytest.raises(ExchangeError) as caught:
                Client(hub.address).send("POST", "/v1/members", b"{}")
            assert len(hub.asked) == 1
            assert not isinstance(caught.value, HubRefused | NotSent)  # the hub may have done it
    assert pauses == []


def test_a_hub_that_is_away_is_found_again_when_it_is_back(pauses: list[float]) -> None:
    port = free_port()
    client = Client(f"http://127.0.0.1:{port}")
    for _ in range(2):
        with pytest.raises(NotSent, match=r"cannot be reached .* check the address, the network"):
            client.send("GET", "/v1/hub")
    assert pauses == []  # an agent that is offline does not wait
    with Liar(lambda _: OK) as hub:
        client.url = HubUrl.parse(hub.address)
        assert client.send("GET", "/v1/hub") == OK.content


# Limits


def test_an_answer_has_a_limit_and_is_not_decompressed() -> None:
    with Liar(lambda asked: Answer(200, bytes(len(asked.content)))) as hub:
        client = Client(hub.address)
        assert client.send("PUT", "/", bytes(1000), most=1000) == bytes(1000)
        with pytest.raises(StrangeAnswer):
            client.send("PUT", "/", bytes(1001), most=1000)
    bomb = gzip.compress(bytes(2**20))
    with Liar(lambda _: Answer(200, bomb, {"Content-Encoding": "gzip"})) as hub:
        assert Client(hub.address).send("GET", "/v1/hub") == bomb
        assert hub.asked[0].headers["Accept-Encoding"] == "identity"


@pytest.mark.parametrize(
    "answer",
    [
        Answer(302, b"", {"Location": "https://elsewhere.example.org/\x1b[2J"}),
        Answer(404, b"<html>nothing here</html>", {"Content-Type": "text/html"}),
        Answer(500, b"\xff" * 100, {"Content-Type": PROBLEM}),
        Answer(422, b'{"title": 7}', {"Content-Type": PROBLEM}),
        Answer(422, json.dumps({"title": "\x1b[2J" * 10**5}).encode(), {"Content-Type": PROBLEM}),
        Answer(raw=b"HTTP/1.1 999 \xff\xff\r\n\r\n"),
        Answer(raw=b"SSH-2.0-OpenSSH_9.6\r\n"),
        Answer(raw=b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n"),
        Answer(raw=b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 10**5 + b"\r\n"),
    ],
)
def test_a_strange_answer_is_an_error_that_can_be_shown(answer: Answer) -> None:
    with Liar(lambda _: answer) as hub:
        with pytest.raises(ExchangeError) as caught:
            Client(hub.address, TOKEN).send("GET", "/v1/hub")
        text = str(caught.value)
        assert text.isprintable() and len(text) < 2500 and TOKEN not in text
        assert all(one.path == "/v1/hub" for one in hub.asked)


@pytest.mark.parametrize(
    ("raw", "endless"),
    [
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\nX: ", b"x"),
        (b"HTTP/1.1 200 OK\r\n\r\n", b"x"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: ", b"x"),
    ],
)
def test_an_answer_has_a_limit_in_time(
    raw: bytes, endless: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "BUDGET", 0.3)
    monkeypatch.setattr(client_module, "_READ", 0.7)
    answers = one_after_another(OK, Answer(raw=raw, endless=endless), OK)
    with Liar(answers) as hub:
        client = Client(hub.address)
        assert client.send("GET", "/") == OK.content  # the connection is used again
        start = time.perf_counter()
        with pytest.raises(StrangeAnswer, match="takes too long"):
            client.send("GET", "/")
        assert time.perf_counter() - start < 5
        assert client.send("GET", "/") == OK.content


# Copies, forks, packages


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_has_connections_of_its_own() -> None:
    with Liar(lambda asked: Answer(200, asked.content)) as hub:
        client = Client(hub.address)
        assert client.send("PUT", "/", b"parent") == b"parent"
        child = os.fork()
        if not child:
            status = 1
            try:
                for i in range(20):
                    assert client.send("PUT", "/", b"child %d" % i) == b"child %d" % i
                status = 0
            finally:
                os._exit(status)
        for i in range(20):
            assert client.send("PUT", "/", b"parent %d" % i) == b"parent %d" % i
        assert os.waitpid(child, 0)[1] == 0


LAST = """
import atexit, sys
atexit.register(lambda: print(client.send("GET", "/v1/hub").decode()))  # the last to run
from fedbo.exchange.hub.client import Client
client = Client(sys.argv[1])
client.send("GET", "/v1/hub")
"""


def test_no_exit_handler_closes_connections_before_the_last_message() -> None:
    with Liar(lambda _: OK) as hub:
        assert ended(child(LAST, hub.address)) == '{"a": 1}\n'


def test_without_httpx2_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx2", None)
    with pytest.raises(ExchangeError, match=r"pip install 'fedbo\[client\]'"):
        Client("https://hub.example.org").send("GET", "/v1/hub")


def test_a_proxy_does_not_see_what_stays_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    with Liar(lambda _: OK) as proxy, Liar(lambda _: OK) as hub:
        for name in ("HTTP_PROXY", "ALL_PROXY", "http_proxy", "all_proxy"):
            monkeypatch.setenv(name, proxy.address)
        assert Client(hub.address, TOKEN).send("GET", "/v1/hub") == OK.content
        assert proxy.asked == []


# Hubs that lie


def enrolled(hub: Liar, name: str = "liver", federation: Federation = OURS) -> HubExchange:
    """The exchange of a member of that hub."""
    mine = Membership(
        address=hub.address,
        federation=name,
        fingerprint=str(federation.fingerprint),
        member="site-a",
        token=TOKEN,
        key=str(keys_of("site-a")),
    )
    Memberships().add(mine)
    return HubExchange(hub.address)


@pytest.fixture
def lying_hub() -> Iterator[tuple[HubExchange, Callable[[Answer], None]]]:
    """An exchange through a hub that gives whatever answer is set."""
    answers = [OK]
    with Liar(lambda _: answers[0]) as hub:
        yield enrolled(hub), lambda answer: answers.__setitem__(0, answer)


def calls(exchange: HubExchange) -> list[Callable[[], object]]:
    """Everything that can be asked of a hub."""
    word = Invitation("liver", OURS.fingerprint, "s" * 32)
    return [
        lambda: exchange.publish(message()),
        lambda: exchange.fetch(OURS),
        lambda: exchange.publish(withdrawal(message())),
        lambda: exchange.holdings(),
        lambda: exchange.member().federation(),
        lambda: exchange.member().rotate(),
        lambda: exchange.member().rekey(new_keys()),
        lambda: enrol(exchange.address, word, "someone", keys=new_keys()),
    ]


def truths() -> list[bytes]:
    """Answers that a hub may give."""
    handed = tuple(Handed(i, message(sender=f"p{i}").encode()) for i in range(3))
    return [
        b'{"out": true}',
        json.dumps({"nonce": "0" * 32}).encode(),
        msgspec.msgpack.encode(News("g.5", True, handed, ())),
        msgspec.msgpack.encode(News("g.5", False, handed[:1], (1, 2))),
        msgspec.msgpack.encode([(time.time(), one.content) for one in handed]),
        json.dumps(
            {"file": OURS.to_toml(), "federation": "liver", "member": "site-a", "token": TOKEN}
        ).encode(),
    ]


def mutated(rng: random.Random, data: bytes) -> bytes:
    """The data with some bytes changed, removed or added."""
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 5, 20])):
        i = rng.randrange(len(changed) + 1)
        match rng.randrange(4):
            case 0 if i < len(changed):
                changed[i] = rng.randrange(256)
            case 1:
                del changed[i : i + rng.choice([1, 2, 10])]
            case 2:
                changed[i:i] = rng.randbytes(rng.choice([1, 4, 20]))
            case _:
                changed[i:i] = rng.choice(
                    [b"\xff" * 5, b"\xdd\xff\xff\xff\xff", b"\xc6\x7f", b"[{"]
                )
    return bytes(changed)


@pytest.mark.filterwarnings("ignore::fedbo.exchange.ExchangeWarning")
def test_whatever_a_hub_answers_it_is_an_answer_or_an_error(
    lying_hub: tuple[HubExchange, Callable[[Answer], None]],
) -> None:
    exchange, say = lying_hub
    rng = random.Random(17)
    told = truths()
    for i in range(150):
        data = rng.choice([*told, rng.randbytes(rng.randrange(200))])
        if i >= len(told):
            data = mutated(rng, data)
        headers = {"Content-Type": rng.choice(["application/json", PROBLEM, "\xff"])}
        if not rng.randrange(10):
            headers["Content-Encoding"] = "gzip"
            data = mutated(rng, gzip.compress(data))
        say(Answer(rng.choice([200, 200, 200, 201, 401, 500]), data, headers))
        for call in calls(exchange):
            try:
                call()
            except (ExchangeError, ValueError) as error:
                assert isinstance(error, ExchangeError) or "invitation" in str(error)
                assert str(error).isprintable() and TOKEN not in str(error)


def hand_out(*contents: bytes, number: int = 0, is_all: bool = True) -> Answer:
    handed = tuple(Handed(number + i, content) for i, content in enumerate(contents))
    return Answer(200, msgspec.msgpack.encode(News(f"g.{number}", is_all, handed, ())))


def test_the_latest_of_too_many_messages_are_held(
    lying_hub: tuple[HubExchange, Callable[[Answer], None]],
) -> None:
    exchange, say = lying_hub
    say(hand_out(*[message().encode()] * 5000))
    with pytest.raises(StrangeAnswer):
        exchange.fetch(OURS)
    names = [f"p{i:04}" for i in range(1600)]
    contents = [message(sender=name).encode() for name in names]
    for number in (0, 800):  # together they are more than a member holds
        say(hand_out(*contents[number : number + 800], number=number, is_all=False))
        found = sequences(exchange)
    assert [*found] == names[-MOST_PEERS:]
    say(hand_out(contents[0], number=0, is_all=False))  # the oldest is the latest again
    assert [*sequences(exchange)] == [names[0], *names[1 - MOST_PEERS :]]


def test_what_a_hub_hands_out_is_checked(
    lying_hub: tuple[HubExchange, Callable[[Answer], None]],
) -> None:
    exchange, say = lying_hub
    good = message(sender="good")
    bad = [b"nonsense", message(OTHERS["seed"], sender="foreign").encode(), b"\0" * 10_000]
    say(hand_out(*bad, good.encode()))
    with pytest.warns(ExchangeWarning) as caught:
        assert heard(exchange) == [good]
    assert len(caught) == 3 and all(exchange.address in str(one.message) for one in caught)
    assert heard(exchange) == [good]  # and says no more
    say(hand_out(*(bytes(i) for i in range(500))))
    with pytest.warns(ExchangeWarning) as caught:
        assert exchange.fetch(OURS) == []
    assert len(caught) == 6 and " more messages in" in str(caught[-1].message)


@pytest.mark.parametrize("is_listed", [False, True])
def test_invented_withdrawals_do_not_bring_a_withdrawn_message_back(
    lying_hub: tuple[HubExchange, Callable[[Answer], None]],
    monkeypatch: pytest.MonkeyPatch,
    is_listed: bool,
) -> None:
    monkeypatch.setattr("fedbo.exchange.hub.exchange.MOST_HANDED", 20)
    exchange, say = lying_hub
    keys, evil = new_keys(), new_keys()
    members = {"evil": evil.public, "site-b": keys.public} if is_listed else None
    federation = Federation(PLANE, features=OURS.features, seed=7, members=members)
    sent = message(sender="site-b", keys=keys)
    names = [f"evil/{i}" for i in range(30)] + [f"n{i}" for i in range(40)]
    invented = [message(sender=name, keys=evil) for name in names]
    say(hand_out(sent.encode()))
    assert heard(exchange, federation) == [sent]
    withdrawn = [withdrawal(sent, keys), *(withdrawal(each, evil) for each in invented)]
    told = [sent, *([] if is_listed else invented), *withdrawn, sent]
    for number in range(0, len(told), 20):  # as many as one answer can have
        contents = (content.encode() for content in told[number : number + 20])
        say(hand_out(*contents, number=number, is_all=False))
        found = unwarned(exchange, federation)
    assert found == []


@pytest.mark.parametrize("when", [-math.inf, math.nan, math.inf, -1.0, 1e300])
def test_an_impossible_time_is_refused(
    lying_hub: tuple[HubExchange, Callable[[Answer], None]], when: float
) -> None:
    exchange, say = lying_hub
    say(Answer(200, msgspec.msgpack.encode([[when, message().encode()]])))
    with pytest.raises(StrangeAnswer, match="expected 0 to"):
        exchange.holdings()


def test_no_contribution_is_taken_from_a_hub() -> None:
    plan = Plan(epsilon=2.0, delta=1e-3, releases=2, least_trials=3)
    private = Federation(PLANE, features=20, seed=3, privacy=plan)
    header = {"fingerprint": private.fingerprint, "sender": "site-b", "sequence": 1, "t_n": 5}
    shape, digest = np.ones(Shared.of(private).shape_coordinates), Shared.of(private).basis.digest
    sent = keys_of("site-b").sign(Message.of_contribution(shape, 0, basis=digest, **header))
    with Liar(lambda _: hand_out(sent.encode())) as hub:
        exchange = enrolled(hub, "lung", private)
        with pytest.warns(ExchangeWarning, match="contribution"):
            assert exchange.fetch(private) == []


def test_another_federation_from_the_hub_is_not_taken(
    lying_hub: tuple[HubExchange, Callable[[Answer], None]],
) -> None:
    exchange, say = lying_hub
    for file in (OTHERS["seed"].to_toml(), "no toml"):
        say(Answer(200, json.dumps({"federation": "liver", "file": file}).encode()))
        with pytest.raises(ExchangeError):
            exchange.member().federation()


@pytest.mark.parametrize("lost", [Answer(raw=b""), Answer(502, b"")])
def test_a_lost_answer_is_explained(
    lying_hub: tuple[HubExchange, Callable[[Answer], None]], lost: Answer
) -> None:
    exchange, say = lying_hub
    say(lost)
    with pytest.raises(ExchangeError, match="its answer was lost"):
        exchange.member().rotate()
    with pytest.raises(ExchangeError):
        Ledger().publish(exchange, message())
    say(Answer(200, b'{"out": false}'))
    Ledger().publish(exchange, message(sequence=7))
    assert [entry.action for entry in Ledger().read()] == ["sent", "sent"]  # the hub has read them
    word = Invitation("liver", OURS.fingerprint, "s" * 32)
    opened = Answer(200, json.dumps({"federation": "liver", "file": OURS.to_toml()}).encode())
    with Liar(lambda asked: opened if asked.path.endswith("open") else lost) as hub:
        with pytest.raises(ExchangeError, match="its answer was lost"):
            enrol(hub.address, word, "site-a", keys=keys_of("site-a"))
        assert len(hub.asked) == 2
    assert [one.member for one in Memberships().at(HubUrl.parse(hub.address))] == []
