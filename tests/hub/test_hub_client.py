"""The client of a hub: retries, limits, and hubs that lie."""

from __future__ import annotations

import copy
import gzip
import json
import logging
import os
import pickle
import random
import sys
import time
from collections.abc import Callable, Iterator

import msgspec
import pytest
import zstandard
from contracts.exchange import OURS, M, message
from contracts.hub import free_port
from contracts.liar import PROBLEM, Answer, Liar, Request

from fedbo.exchange import ExchangeError, ExchangeWarning, Progress
from fedbo.exchange.hub import client as client_module
from fedbo.exchange.hub.client import Client, HubRefused, StrangeAnswer
from fedbo.exchange.hub.enrol import enrol
from fedbo.exchange.hub.exchange import HubExchange
from fedbo.exchange.hub.invitation import Invitation
from fedbo.exchange.hub.memberships import Membership, Memberships
from fedbo.exchange.hub.url import HubUrl
from fedbo.exchange.hub.wire import Handed, News
from fedbo.federation.scalars import Scalars

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


def refusal(slug: str, status: int, **headers: str) -> Answer:
    document = {"type": f"/problems/{slug}", "title": "A title", "detail": "a detail"}
    return Answer(status, json.dumps(document).encode(), {"Content-Type": PROBLEM, **headers})


OK = Answer(200, b'{"a": 1}')


# Addresses


@pytest.mark.parametrize(
    "address",
    [
        "https://",
        "https:///liver",
        "https://user:secret@hub.example.org",
        "https://hub.example.org:99999",
        "https://hub.example.org:x",
        "https://hub.example.org/a/b",
        "https://hub.example.org/?x=1",
        "https://hub.example.org/#x",
        "https://hub.example\n.org",
        "https://hub .example.org",
        "https://[::1",
        "https://" + "x" * 600,
        "ftp://hub.example.org",
        "http://hub.example.org",
        "http://127.0.0.1.example.org",
        "http://0.0.0.0:8765",
        "http://10.0.0.1",
    ],
)
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(ExchangeError) as caught:
        HubUrl.parse(address)
    assert "secret" not in str(caught.value)
    assert str(caught.value).isprintable() and len(str(caught.value)) < 500


# Retries


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_busy_hub_is_asked_again(status: int, pauses: list[float]) -> None:
    with Liar(one_after_another(Answer(status), Answer(status), OK)) as hub:
        assert Client(hub.address).send("GET", "/v1/hub") == b'{"a": 1}'
    assert len(pauses) == 2 and all(0 <= pause <= 1 for pause in pauses)


def test_a_hub_may_say_when_to_ask_again(pauses: list[float]) -> None:
    answers = [Answer(429, headers={"Retry-After": "3"}), OK]
    with Liar(one_after_another(*answers)) as hub:
        assert Client(hub.address).send("GET", "/v1/hub") == OK.content
    assert pauses == [3.0]


@pytest.mark.parametrize("after", ["3600", "9" * 400, "Fri, 31 Dec 9999 23:59:59 GMT"])
def test_nobody_waits_for_long(after: str, pauses: list[float]) -> None:
    with Liar(
        one_after_another(refusal("too-many-requests", 429, **{"Retry-After": after}))
    ) as hub:
        with pytest.raises(HubRefused, match="A title: a detail") as caught:
            Client(hub.address).send("GET", "/v1/hub")
        assert len(hub.asked) == 1
    assert pauses == []
    assert (caught.value.slug, caught.value.status) == ("too-many-requests", 429)


@pytest.mark.parametrize("after", ["-5", "soon", "", "1e9", "٣", "nan"])
def test_nonsense_about_when_to_ask_again_is_ignored(after: str, pauses: list[float]) -> None:
    headers = {"Retry-After": after.encode().decode("latin-1")}
    with Liar(one_after_another(Answer(503, headers=headers), OK)) as hub:
        assert Client(hub.address).send("GET", "/v1/hub") == OK.content
    assert pauses[0] < 1


def test_a_hub_that_stays_busy_is_left_after_a_while(pauses: list[float]) -> None:
    with Liar(one_after_another(refusal("not-ready", 503))) as hub:
        client = Client(hub.address)
        with pytest.raises(HubRefused, match="a detail"):
            client.send("GET", "/v1/hub")
        assert 3 < len(hub.asked) < 100 and sum(pauses) < client_module.BUDGET
        asked = len(hub.asked)
        with pytest.raises(HubRefused):
            client.send("GET", "/v1/hub")
        assert len(hub.asked) == asked + 1  # it was out of order just now


def test_what_must_not_be_done_twice_is_not_sent_twice() -> None:
    cut = Answer(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
    for answer in (cut, Answer(502), Answer(504)):
        with Liar(one_after_another(answer)) as hub:
            with pytest.raises(ExchangeError):
                Client(hub.address).send("POST", "/v1/members", b"{}", once=True)
            assert len(hub.asked) == 1
    with Liar(one_after_another(Answer(503), OK)) as hub:  # it was certainly not done
        assert Client(hub.address).send("POST", "/v1/members", b"{}", once=True) == OK.content


def test_a_hub_that_is_away_is_found_again_when_it_is_back(pauses: list[float]) -> None:
    port = free_port()
    client = Client(f"http://127.0.0.1:{port}")
    with pytest.raises(ExchangeError, match=r"cannot be reached .* check the address, the network"):
        client.send("GET", "/v1/hub")
    assert len(pauses) > 3 and sum(pauses) < client_module.BUDGET
    pauses.clear()
    with pytest.raises(ExchangeError, match="cannot be reached"):
        client.send("GET", "/v1/hub")
    assert pauses == []  # an agent that is offline does not wait for each message
    with Liar(lambda _: OK) as hub:
        client.url = HubUrl.parse(hub.address)
        assert client.send("GET", "/v1/hub") == OK.content


def test_a_hub_that_closes_the_connection_is_asked_again() -> None:
    with Liar(one_after_another(Answer(raw=b""), OK)) as hub:
        assert Client(hub.address).send("GET", "/v1/hub") == OK.content


# Limits


@pytest.mark.parametrize("coding", ["identity", "gzip", "zstd"])
def test_an_answer_has_a_limit(coding: str) -> None:
    pack = {"identity": bytes, "gzip": gzip.compress, "zstd": zstandard.compress}[coding]
    for size, fits in ((1000, True), (1001, False), (10**8, False)):
        content = bytes(pack(bytes(size))) if coding != "identity" or size < 10**6 else b"x" * 10**6
        with Liar(lambda _, c=content: Answer(200, c, {"Content-Encoding": coding})) as hub:
            client = Client(hub.address)
            if fits:
                assert client.send("GET", "/v1/hub", most=1000) == bytes(size)
                continue
            with pytest.raises(StrangeAnswer, match=r"has more than 1,000 bytes"):
                client.send("GET", "/v1/hub", most=1000)


def test_a_bomb_does_not_take_memory() -> None:
    """1 MB that would become 4 GB."""
    import resource

    packed = zstandard.ZstdCompressor().compress(bytes(2**27))
    bomb = packed * (2**20 // len(packed))
    with Liar(lambda _: Answer(200, bomb, {"Content-Encoding": "zstd"})) as hub:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(StrangeAnswer):
            Client(hub.address).send("GET", "/v1/hub", most=2**22)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kB


@pytest.mark.parametrize(
    "answer",
    [
        Answer(200, b"x", {"Content-Encoding": "br"}),
        Answer(200, b"x", {"Content-Encoding": "gzip"}),
        Answer(200, b"x", {"Content-Encoding": "zstd"}),
        Answer(200, gzip.compress(b"abc" * 1000)[:-20], {"Content-Encoding": "gzip"}),
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


def test_a_redirect_is_not_followed() -> None:
    with Liar(lambda _: OK) as elsewhere:
        to = Answer(307, b"", {"Location": f"{elsewhere.address}/v1/hub"})
        with Liar(lambda _: to) as hub, pytest.raises(ExchangeError, match="it sends elsewhere"):
            Client(hub.address, TOKEN).send("GET", "/v1/hub")
        assert elsewhere.asked == []


def test_an_answer_that_drips_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "BUDGET", -100.0)
    drip = Answer(200, b"{}")
    with Liar(lambda _: drip) as hub, pytest.raises(StrangeAnswer, match="takes too long"):
        Client(hub.address).send("GET", "/v1/hub")


# Copies, forks, packages


def test_a_copy_has_no_token() -> None:
    client = Client("https://hub.example.org", TOKEN)
    assert copy.deepcopy(client) is client
    assert TOKEN not in repr(client)
    with pytest.raises(TypeError, match="a token is not copied"):
        pickle.dumps(client)


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


def test_without_httpx_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(ExchangeError, match=r"pip install 'fedbo\[client\]'"):
        Client("https://hub.example.org").send("GET", "/v1/hub")


def test_without_zstandard_it_asks_for_gzip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_has_zstd", lambda: False)
    packed = Answer(200, gzip.compress(b"abc"), {"Content-Encoding": "gzip"})
    with Liar(lambda _: packed) as hub:
        assert Client(hub.address).send("GET", "/v1/hub") == b"abc"
        assert hub.asked[0].headers["Accept-Encoding"] == "gzip"


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("SSL_CERT_FILE", "/no/such/file", "SSL_CERT_FILE or SSL_CERT_DIR cannot be read"),
        ("HTTPS_PROXY", "strange://user:secret@proxy", "HTTPS_PROXY or ALL_PROXY cannot be used"),
        ("ALL_PROXY", "socks5://user:secret@proxy", "HTTPS_PROXY or ALL_PROXY cannot be used"),
    ],
)
def test_wrong_variables_are_named(
    variable: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ExchangeError, match=said) as caught:
        Client("https://hub.example.org").send("GET", "/v1/hub")
    assert "secret" not in str(caught.value)


def test_a_proxy_does_not_see_what_stays_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    with Liar(lambda _: OK) as proxy, Liar(lambda _: OK) as hub:
        for name in ("HTTP_PROXY", "ALL_PROXY", "http_proxy", "all_proxy"):
            monkeypatch.setenv(name, proxy.address)
        assert Client(hub.address, TOKEN).send("GET", "/v1/hub") == OK.content
        assert proxy.asked == []


def test_a_hub_with_tls_that_is_asked_without_it() -> None:
    with Liar(lambda _: Answer(raw=b"")) as hub, pytest.raises(ExchangeError) as caught:
        Client(hub.address).send("GET", "/v1/hub", once=True)
    assert str(caught.value).endswith("whether the hub is running, or use https://")


def test_what_it_means_if_a_token_is_refused() -> None:
    refused = one_after_another(refusal("wrong-token", 401))
    with Liar(refused) as hub, pytest.raises(HubRefused) as caught:
        Client(hub.address, TOKEN).send("GET", "/v1/hub")
    assert str(caught.value).endswith("or the hub was restored from a backup. Ask whoever runs it")
    assert caught.value.slug == "wrong-token"


def test_no_log_has_a_token(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with Liar(one_after_another(refusal("wrong-token", 401))) as hub, pytest.raises(HubRefused):
        Client(hub.address, TOKEN).send("GET", "/v1/hub")
    assert hub.asked[0].headers["Authorization"] == f"Bearer {TOKEN}"
    assert TOKEN not in caplog.text


# Hubs that lie


@pytest.fixture
def lying_hub() -> Iterator[tuple[HubExchange, Callable[[Answer], None]]]:
    """An exchange through a hub that gives whatever answer is set."""
    answers = [OK]
    with Liar(lambda _: answers[0]) as hub:
        mine = Membership(
            address=hub.address,
            federation="liver",
            fingerprint=str(OURS.fingerprint),
            member="site-a",
            token=TOKEN,
        )
        Memberships().add(mine)
        yield HubExchange(hub.address), lambda answer: answers.__setitem__(0, answer)


def calls(exchange: HubExchange) -> list[Callable[[], object]]:
    """Everything that can be asked of a hub."""
    fitted = {"length_scales": (0.3, 0.3), "noise_variance": 0.1, "t_n": 5}
    scalars = Scalars(fingerprint=OURS.fingerprint, sender="site-a", **fitted)
    progress = Progress(fingerprint=OURS.fingerprint, sender="site-a", trials=5, best=0.5)
    word = Invitation("liver", OURS.fingerprint, "s" * 32)
    return [
        lambda: exchange.publish(message()),
        lambda: exchange.fetch(OURS),
        lambda: exchange.withdraw(OURS, "site-a"),
        lambda: exchange.holdings(),
        lambda: exchange.latest(OURS),
        lambda: exchange.share(scalars),
        lambda: exchange.shared(OURS),
        lambda: exchange.report(progress),
        lambda: exchange.site().rotate(),
        lambda: enrol(exchange.address, word, "someone"),
    ]


def truths() -> list[bytes]:
    """Answers that a hub may give."""
    file = OURS.next_epoch(length_scale=0.5).to_toml()
    held = tuple(Handed(i, message(sender=f"p{i}").encode()) for i in range(3))
    fitted = {"length_scales": (0.3, 0.3), "noise_variance": 0.1, "t_n": 5}
    scalars = Scalars(fingerprint=OURS.fingerprint, sender="p", **fitted)
    return [
        b'{"out": true}',
        msgspec.msgpack.encode(News("g.5", True, held, (), 1)),
        msgspec.msgpack.encode(News("g.5", False, held[:1], (1, 2), 0)),
        msgspec.msgpack.encode([(time.time(), one.content) for one in held]),
        msgspec.msgpack.encode([scalars.encode()]),
        json.dumps({"epoch": 1, "file": file, "federation": "liver", "token": TOKEN}).encode(),
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
            headers["Content-Encoding"] = rng.choice(["gzip", "zstd"])
            data = mutated(
                rng,
                {"gzip": gzip.compress, "zstd": zstandard.compress}[headers["Content-Encoding"]](
                    data
                ),
            )
        say(Answer(rng.choice([200, 200, 200, 201, 401, 500]), data, headers))
        for call in calls(exchange):
            try:
                call()
            except (ExchangeError, ValueError) as error:
                assert isinstance(error, ExchangeError) or "invitation" in str(error)
                assert str(error).isprintable() and TOKEN not in str(error)


def test_too_many_messages_are_refused(
    lying_hub: tuple[HubExchange, Callable[[Answer], None]],
) -> None:
    exchange, say = lying_hub
    content = message().encode()
    for n in (2049, 5000):
        news = News("g.1", True, tuple(Handed(i, content) for i in range(n)), (), 0)
        say(Answer(200, msgspec.msgpack.encode(news)))
        with pytest.raises(StrangeAnswer):
            exchange.fetch(OURS)
    for i in range(3):  # and in pieces
        handed = tuple(Handed(1000 * i + j, content) for j in range(1000))
        say(Answer(200, msgspec.msgpack.encode(News(f"g.{i}", False, handed, (), 0))))
        if i < 2:
            assert len(exchange.fetch(OURS)) == 1
    with pytest.raises(StrangeAnswer, match="more than 1,024 messages"):
        exchange.fetch(OURS)


def test_what_a_hub_hands_out_is_checked(
    lying_hub: tuple[HubExchange, Callable[[Answer], None]],
) -> None:
    exchange, say = lying_hub
    good = message(sender="good")
    bad = [
        b"nonsense",
        message(OURS.next_epoch(), sender="later").encode(),
        b"\0" * 10_000,
    ]
    handed = tuple(Handed(i, one) for i, one in enumerate([*bad, good.encode()]))
    say(Answer(200, msgspec.msgpack.encode(News("g.1", True, handed, (), 0))))
    with pytest.warns(ExchangeWarning) as caught:
        assert exchange.fetch(OURS) == [good]
    texts = " ".join(str(one.message) for one in caught)
    assert len(caught) == 3 and exchange.address in texts
    assert "not a message" in texts and "is of epoch 1" in texts and "10,000 bytes" in texts
    assert exchange.fetch(OURS) == [good]  # and says no more
    many = tuple(Handed(i, b"%d" % i) for i in range(500))
    say(Answer(200, msgspec.msgpack.encode(News("g.2", True, many, (), 0))))
    with pytest.warns(ExchangeWarning) as caught:
        assert exchange.fetch(OURS) == []
    assert len(caught) == 6 and "495 more messages" in str(caught[-1].message)


def test_an_epoch_from_the_hub_must_continue_ours(
    lying_hub: tuple[HubExchange, Callable[[Answer], None]],
) -> None:
    from contracts.exchange import OTHERS

    exchange, say = lying_hub

    def hand_out(file: str) -> None:
        say(Answer(200, json.dumps({"epoch": 1, "file": file}).encode()))

    later = OURS.next_epoch(length_scale=0.7)
    hand_out(later.to_toml())
    assert exchange.latest(OURS) == later
    hand_out(OURS.to_toml())
    assert exchange.latest(later) is later
    assert exchange.latest(OURS) is OURS
    hand_out(OTHERS["space"].next_epoch().to_toml())
    with pytest.raises(ExchangeError, match="does not continue epoch 0: the federations differ"):
        exchange.latest(OURS)
    hand_out("no toml")
    with pytest.raises(ExchangeError, match=r"federation file from .* cannot be used"):
        exchange.latest(OURS)


def test_a_hub_cannot_replace_the_keys_of_members(
    lying_hub: tuple[HubExchange, Callable[[Answer], None]],
) -> None:
    from contracts.exchange import new_keys
    from contracts.parties import PLANE

    from fedbo import Federation

    exchange, say = lying_hub
    ours, other, new = (str(new_keys()) for _ in range(3))
    given = {"features": M, "seed": 7}
    listed = Federation(PLANE, **given, members={"a": ours, "b": other})
    for members, fault in (
        ({"a": ours, "b": other, "c": new}, ""),
        ({"a": ours}, "does not list 'b'.* fedbo join .* --federation NEW"),
        ({"a": new, "b": other}, "lists another key for 'a'"),
        (None, "does not list the keys of its members any more"),
    ):
        later = Federation(PLANE, **given, members=members, epoch=1)
        say(Answer(200, json.dumps({"epoch": 1, "file": later.to_toml()}).encode()))
        if not fault:
            assert exchange.latest(listed).members == later.members
            continue
        with pytest.raises(ExchangeError, match=fault):
            exchange.latest(listed)


def test_an_invitation_to_another_federation_is_noticed() -> None:
    from contracts.exchange import OTHERS

    word = Invitation("liver", OURS.fingerprint, "s" * 32)
    opened = {"federation": "liver", "epoch": 0, "file": OTHERS["seed"].to_toml()}
    with Liar(lambda _: Answer(200, json.dumps(opened).encode())) as hub:
        with pytest.raises(ValueError, match="not the one that the invitation is for") as caught:
            enrol(hub.address, word, "site-a")
        assert word.secret not in str(caught.value)
        assert [one.path for one in hub.asked] == ["/v1/invitations/open"]
    assert Memberships().all() == []


@pytest.mark.parametrize("lost", [Answer(raw=b""), Answer(502, b"")])
def test_a_lost_answer_to_a_rotation_is_explained(
    lying_hub: tuple[HubExchange, Callable[[Answer], None]], lost: Answer
) -> None:
    exchange, set_answer = lying_hub
    set_answer(lost)
    with pytest.raises(ExchangeError, match="it had changed it and its answer was lost"):
        exchange.site().rotate()


@pytest.mark.parametrize("lost", [Answer(raw=b""), Answer(502, b"")])
def test_a_lost_answer_to_enrolling_is_explained(lost: Answer) -> None:
    word = Invitation("liver", OURS.fingerprint, "s" * 32)
    opened = {"federation": "liver", "epoch": 0, "file": OURS.to_toml()}

    def answer(asked: Request) -> Answer:
        if asked.path.endswith("open"):
            return Answer(200, json.dumps(opened).encode())
        return lost

    with Liar(answer) as hub:
        with pytest.raises(ExchangeError, match="it had enrolled you and its answer was lost"):
            enrol(hub.address, word, "site-a")
        assert len(hub.asked) == 2
    assert Memberships().all() == []
