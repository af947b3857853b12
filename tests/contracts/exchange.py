"""What every exchange must do, as tests: inherit them by naming the exchange.

An exchange of your own gets all of them in a file like this::

    from contracts.exchange import ExchangeContract

    class TestMine(ExchangeContract):
        @pytest.fixture
        def exchange(self, tmp_path):
            return Mine(...)    # a new place with nothing in it

        def again(self, exchange):
            return Mine(exchange.address)   # as another program comes to the same place

with the folder ``tests`` of fedbo's repository on the path (``pythonpath`` in pytest's settings).
The contract in words is `fedbo.exchange.Exchange`. An exchange's tests take a few seconds.

By default, a place is one to which anyone may bring anything, such as a folder. If yours refuses
what is not its sender's, set ``guards_door``, and let ``put`` go around that: receivers must not
rely on it.
"""

from __future__ import annotations

import copy
import hashlib
import os
import pickle
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from msgspec.structs import replace

import fedbo
from fedbo import Federation, Message
from fedbo.exchange import Exchange, ExchangeError, ExchangeWarning
from fedbo.exchange.latest import Content
from fedbo.federation.shared import Shared
from fedbo.message import Kind, Withdrawal
from fedbo.model.summary import quantise
from fedbo.testing.keys import keys_of, new_keys
from fedbo.testing.parties import LISTED, MIXED, PLANE
from fedbo.trust import KeyPair

#: The federations that messages were made for, by fingerprint.
KNOWN: dict[bytes, Federation] = {}

M = 5
OURS = Federation(PLANE, features=M, seed=7)
#: Federations that differ from `OURS` in one thing each, and must not hear it.
OTHERS = {
    "space": Federation(MIXED, features=M, seed=7),
    "listed points": Federation(LISTED, features=M, seed=7),
    "features": Federation(PLANE, features=M + 1, seed=7),
    "seed": Federation(PLANE, features=M, seed=8),
    "kernel": Federation(PLANE, features=M, seed=7, kernel="matern52"),
    "kind": Federation(PLANE, features=M, seed=7, kind="belief"),
    "noise": Federation(PLANE, features=M, seed=7, noise_variance=0.2),
    "length scale": Federation(PLANE, features=M, seed=7, length_scale=0.7),
}
#: Names that some file system, protocol or program might stumble over.
NAMES = [
    "site-a",
    "Site-A",  # the same to some file systems
    "SITE-A",
    ".hidden",
    "..",
    ".",
    "~",
    "-rf",
    "a/b",
    "../a",
    "/etc/passwd",
    "a\\b",
    "C:",
    "con",
    "NUL.txt",
    "a b",
    " a ",
    "a.",
    "a%2Fb",
    "a?b#c&d=e",
    "*",
    '"a"',
    "é",
    "e\u0301",  # the same letter in two pieces
    "日本語の病院",
    "🏥",
    "x.fedbo",
    "x" * 64,
    "/" * 64,
    "語" * 21 + "x",
]


def message(
    federation: Federation = OURS,
    sender: str = "site-a",
    sequence: int = 1,
    keys: KeyPair | None = None,
    **changes: Any,
) -> Message:
    """A signed message of the federation; its numbers are this sender's and this sequence's own."""
    unsigned = unsigned_message(federation, sender, sequence, **changes)
    return (keys or keys_of(sender)).sign(unsigned)


def unsigned_message(
    federation: Federation = OURS, sender: str = "site-a", sequence: int = 1, **changes: Any
) -> Message:
    """The same without a signature."""
    KNOWN[bytes(federation.fingerprint)] = federation
    seed = hashlib.sha256(f"{sender} {sequence}".encode()).digest()
    rng = np.random.default_rng([*seed])
    header = {
        "fingerprint": federation.fingerprint,
        "sender": sender,
        "sequence": sequence,
        "t_n": 20,
        **changes,
    }
    if federation.kind == "weights":
        return Message.of_weights(rng.standard_normal(federation.features), **header)
    moments = (
        rng.standard_normal(Shared.of(federation).coordinates),
        np.eye(Shared.of(federation).coordinates),
    )
    if federation.kind == "compact":
        levels, scales = quantise(moments[0][None], rng)
        t_n, cells = header["t_n"], len(Shared.of(federation).cells)
        places = rng.integers(cells, size=min(t_n, 255))
        counts = np.bincount(places, minlength=cells) if t_n <= 255 else np.full(cells, 3)
        digest = Shared.of(federation).basis.digest
        return Message.of_compact(levels[0], scales[0], counts, basis=digest, **header)
    return Message.of_belief(*moments, 1.5, **header)


def spoilt(given: Message, value: float = np.nan) -> Message:
    """The message with one number that nobody can use, signed by its sender."""
    keys = keys_of(given.sender)
    if given.kind == "compact":  # a scale that is not finite is no scale, but its product may be
        scale = np.array([value if np.isfinite(value) else 3e38], dtype="<f4")
        return keys.sign(replace(given, body=replace(given.body, scale=scale.tobytes())))
    numbers = np.frombuffer(given.body.data, dtype="<f4").copy()
    numbers[-1] = value
    return keys.sign(replace(given, body=replace(given.body, data=numbers.tobytes())))


def heard(exchange: Exchange, federation: Federation = OURS) -> list[Content]:
    """What is fetched."""
    return [trusted.content for trusted in exchange.fetch(federation)]


def sequences(exchange: Exchange, federation: Federation = OURS) -> dict[str, int]:
    """Who is there, with which message."""
    return {found.sender: found.sequence for found in heard(exchange, federation)}


def withdrawal(given: Content, keys: KeyPair | None = None) -> Withdrawal:
    """The signed withdrawal of a message."""
    header = {"fingerprint": given.fingerprint, "sender": given.sender}
    unsigned = Withdrawal(sequence=given.sequence, **header)
    return (keys or keys_of(given.sender)).sign(unsigned)


def unwarned(exchange: Exchange, federation: Federation = OURS) -> list[Content]:
    """What is fetched, whatever is said about what is not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExchangeWarning)
        return heard(exchange, federation)


def exchange_warnings(exchange: Exchange, federation: Federation = OURS) -> list[str]:
    """What is said while messages are fetched."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ExchangeWarning)
        exchange.fetch(federation)
    return [str(warning.message) for warning in caught]


def child(program: str, *args: object, **given: Any) -> subprocess.Popen[str]:
    """A process that runs this program, and knows what is in this file and in `fedbo.exchange`.

    On a busy machine another one may hold a lock for longer than it would be waited for.
    """
    start = (
        "import sys\n"
        "from contracts.exchange import *\n"
        "from fedbo.exchange import *\n"
        "from fedbo import files\n"
        "files._WAIT = 60.0\n"
    )
    tests, source = Path(__file__).parents[1], Path(fedbo.__file__).parents[1]
    return subprocess.Popen(
        [sys.executable, "-c", start + program, *map(str, args)],
        env=os.environ | {"PYTHONPATH": f"{source}{os.pathsep}{tests}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **given,
    )


def together(processes: list[subprocess.Popen[str]]) -> None:
    """Let processes that say that they are ready, and wait for a line, begin at one moment."""
    for process in processes:
        assert process.stdout and process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()


def ended(process: subprocess.Popen[str]) -> str:
    """What the process printed, when it has ended well."""
    said, complaint = process.communicate(timeout=300)
    assert process.returncode == 0, complaint
    return said


class Place:
    """A place under test. A subclass says which exchange, and how another program comes to it."""

    @pytest.fixture(autouse=True)
    def own_state(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Keys that become known in a test are not this user's."""
        monkeypatch.setenv("FEDBO_STATE", str(tmp_path / "state"))

    @pytest.fixture
    def keys(self) -> KeyPair:
        return new_keys()

    @pytest.fixture
    def exchange(self, tmp_path: Path) -> Exchange:
        """A new place with nothing in it."""
        raise NotImplementedError(f"{type(self).__name__} does not name its exchange")

    def again(self, exchange: Exchange) -> Exchange:
        """The same place, as another program comes to it."""
        return copy.deepcopy(exchange)


class ExchangeContract(Place):
    """The tests."""

    guards_door = False  # whether it refuses what is not the sender's, at once
    tells_of_others = True  # whether those of one federation learn of messages of another one
    lists_all = True  # whether it has `holdings`
    knows_keys = True  # whether it hears only what is signed
    names: Sequence[str] = tuple(NAMES)  # those of agents that it takes

    def peer(self, i: int) -> str:
        """The name of one of many peers, in the order of their numbers."""
        return f"peer-{i:03}"

    def put(self, exchange: Exchange, content: Message) -> None:
        """Put a message there as somebody can who controls the place."""
        exchange.publish(content)

    def smuggle(self, exchange: Exchange, content: Message) -> None:
        """Put a message there that should not be there: a guard refuses it, but may be evaded."""
        self.try_door(exchange, content)
        if self.guards_door:
            self.put(exchange, content)

    def put_back(self, exchange: Exchange, content: Message) -> None:
        """Put an old message in the place of what counts, as who controls the place can."""
        raise NotImplementedError(f"{type(self).__name__} does not say how")

    def try_door(self, exchange: Exchange, content: Message) -> None:
        """Publish a message that should not be there, as anyone can try to."""
        if self.guards_door:
            with pytest.raises(ExchangeError):
                exchange.publish(content)
        else:
            exchange.publish(content)

    # What is there

    @pytest.mark.parametrize("kind", get_args(Kind))
    def test_messages_of_all_kinds_arrive_to_the_last_bit(
        self, exchange: Exchange, kind: Kind
    ) -> None:
        federation = Federation(PLANE, features=40, kind=kind)
        sent = [message(federation, sender) for sender in ("a", "b", "c")]
        for one in sent:
            exchange.publish(one)
        for place in (exchange, self.again(exchange)):
            found = heard(place, federation)
            assert found == sent
            assert [one.encode() for one in found] == [one.encode() for one in sent]

    def test_any_name_will_do(self, exchange: Exchange) -> None:
        sent = {name: message(sender=name) for name in self.names}
        for one in sent.values():
            exchange.publish(one)
        for name in {*NAMES} - {*self.names}:
            self.try_door(exchange, message(sender=name))
        found = heard(self.again(exchange))
        assert {one.sender: one for one in found} == sent
        for name in self.names[::2]:
            assert exchange.publish(withdrawal(sent[name]))
        assert sequences(exchange).keys() == {*self.names[1::2]}

    # One message for each sender

    def test_a_newer_message_replaces_an_older_one(self, exchange: Exchange) -> None:
        watcher = self.again(exchange)
        for sequence in (0, 1, 2, 10, 2**32 - 1):
            sent = message(sequence=sequence)
            for place in (exchange, exchange, self.again(exchange)):  # a retry changes nothing
                assert place.publish(sent) is True
                assert heard(exchange) == heard(watcher) == [sent]

    def test_whoever_publishes_learns_who_is_heard(self, exchange: Exchange) -> None:
        """If two agents took one name by mistake, the one that is behind must get to know it."""
        theirs = [message(sequence=sequence, t_n=30) for sequence in (4, 6)]
        assert exchange.publish(theirs[0]) is True
        heard = {ours: exchange.publish(message(sequence=ours)) for ours in (3, 4, 5)}
        assert heard == {3: False, 4: False, 5: True}
        assert exchange.publish(theirs[0]) is False
        assert exchange.publish(theirs[1]) is True
        assert exchange.publish(message(OTHERS["seed"], sequence=1)) is True
        assert unwarned(exchange) == [theirs[1]]

    # Federations

    @pytest.mark.parametrize("what", OTHERS)
    def test_federations_do_not_hear_each_other(self, exchange: Exchange, what: str) -> None:
        """One agent may be in both, and its messages must not replace each other."""
        exchange.publish(message(OTHERS[what], sequence=9))
        assert unwarned(exchange) == []
        exchange.publish(message(OURS, sequence=3))
        assert heard(exchange) == [message(OURS, sequence=3)]
        assert unwarned(exchange, OTHERS[what]) == [message(OTHERS[what], sequence=9)]

    @pytest.mark.parametrize("what", OTHERS)
    def test_another_federation_is_reported_once(self, exchange: Exchange, what: str) -> None:
        """Whoever agreed on something else by mistake must learn it."""
        other = OTHERS[what]
        for sender in ("a", "b", "c"):
            exchange.publish(message(other, sender))
        if self.tells_of_others:
            difference = OURS.fingerprint.mismatch(other.fingerprint)
            with pytest.warns(ExchangeWarning) as caught:
                assert heard(exchange) == []
            [said] = [str(warning.message) for warning in caught]
            assert f"another federation is here, in {exchange.address}, and" in said
            assert str(difference) in said
        exchange.publish(message(other, "d"))
        assert heard(exchange) == []  # a warning would be an error

    # What does not fit

    @pytest.mark.parametrize("value", [np.nan, np.inf, 1e9])
    def test_an_absurd_message_is_skipped_with_one_warning(
        self, exchange: Exchange, value: float
    ) -> None:
        """No place looks at numbers: receivers do."""
        exchange.publish(message(sender="good"))
        exchange.publish(spoilt(message(sender="bad"), value))
        with pytest.warns(ExchangeWarning, match="has norm") as caught:
            assert sequences(exchange) == {"good": 1}
        assert len(caught) == 1
        assert "'bad'" in str(caught[0].message)
        assert sequences(exchange) == {"good": 1}  # and says no more: a warning is an error here
        exchange.publish(spoilt(message(sender="bad", sequence=2), value))
        with pytest.warns(ExchangeWarning, match="message 2 of 'bad'"):
            assert sequences(exchange) == {"good": 1}
        exchange.publish(message(sender="bad", sequence=3))
        assert sequences(exchange) == {"bad": 3, "good": 1}

    # Withdrawing

    def test_a_withdrawn_message_is_handed_out_no_more(self, exchange: Exchange) -> None:
        watcher = self.again(exchange)
        for sender in ("a", "b"):
            exchange.publish(message(sender=sender))
        assert sequences(watcher) == {"a": 1, "b": 1}
        for place in (exchange, exchange, watcher):  # a retry changes nothing
            assert place.publish(withdrawal(message(sender="a"))) is True
        assert sequences(exchange) == sequences(watcher) == {"b": 1}

    def test_a_sender_comes_back_with_a_later_message(self, exchange: Exchange) -> None:
        exchange.publish(message(sequence=5))
        exchange.publish(withdrawal(message(sequence=5)))
        for sequence in (1, 5):
            assert self.again(exchange).publish(message(sequence=sequence)) is False
            assert heard(exchange) == heard(self.again(exchange)) == []
        assert exchange.publish(message(sequence=6)) is True
        assert sequences(exchange) == {"site-a": 6}

    def test_a_later_message_is_not_withdrawn(self, exchange: Exchange) -> None:
        exchange.publish(message(sequence=5))
        assert exchange.publish(withdrawal(message(sequence=4))) is False
        assert sequences(exchange) == {"site-a": 5}

    @pytest.mark.parametrize("what", OTHERS)
    def test_what_was_handed_out_elsewhere_stays(self, exchange: Exchange, what: str) -> None:
        exchange.publish(message(OURS))
        exchange.publish(message(OTHERS[what]))
        assert exchange.publish(withdrawal(message(OURS)))
        assert unwarned(exchange) == []
        assert unwarned(exchange, OTHERS[what]) == [message(OTHERS[what])]

    # Keys

    @pytest.mark.parametrize("attack", ["unsigned", "another key", "forged"])
    @pytest.mark.parametrize("what", ["message", "withdrawal"])
    @pytest.mark.parametrize("first", ["site", "attacker"])
    def test_nobody_else_can_silence_a_site(
        self, exchange: Exchange, attack: str, what: str, first: str
    ) -> None:
        """With something that claims to be the last that the site can ever send."""
        if not self.knows_keys:
            pytest.skip("the agents of one program need no keys")
        keys = keys_of("site-a")
        exchange.publish(message())
        assert sequences(exchange) == {"site-a": 1}
        last = message(sequence=2**32 - 1)
        if what == "withdrawal":
            last = withdrawal(last)
        if attack == "another key":
            last = new_keys().sign(last)
        elif attack == "forged":
            last = replace(last, key=keys.public, signature=bytes(64))
        else:
            last = replace(last, key=b"", signature=b"")
        ours = message(sequence=2)
        for one in (last, ours) if first == "attacker" else (ours, last):
            if one is ours:
                self.again(exchange).publish(one)
            elif attack == "another key":
                self.smuggle(self.again(exchange), one)
            else:
                with pytest.raises(ExchangeError):
                    self.again(exchange).publish(one)
        assert exchange.publish(ours) is True
        assert unwarned(exchange) == [ours]
        assert heard(exchange) == [ours]

    def test_only_listed_members_are_heard(self, exchange: Exchange, keys: KeyPair) -> None:
        if not self.knows_keys:
            pytest.skip("the agents of one program need no keys")
        listed = Federation(PLANE, features=M, seed=7, members={"site-a": str(keys_of("site-a"))})
        exchange.publish(message(listed))
        self.smuggle(exchange, message(listed, sender="stranger"))
        with pytest.warns(ExchangeWarning, match="'stranger'"):
            assert sequences(exchange, listed) == {"site-a": 1}

    def test_an_old_message_is_not_heard_again(self, exchange: Exchange) -> None:
        """Whoever controls a place can put one back, also after this program has ended."""
        if not self.knows_keys:
            pytest.skip("the agents of one program need no keys")
        exchange.publish(message(sequence=5))
        assert sequences(exchange) == {"site-a": 5}
        self.put_back(exchange, message(sequence=4))
        later = self.again(exchange)
        with pytest.warns(ExchangeWarning, match="a later one of this sender was heard here"):
            assert heard(later) == []
        exchange.publish(message(sequence=6))
        assert sequences(later) == {"site-a": 6}

    # All that is there

    def test_everything_that_is_there_is_listed(self, exchange: Exchange, keys: KeyPair) -> None:
        if not self.lists_all:
            pytest.skip("it lists nothing")
        assert exchange.holdings() == []
        sent = [
            message(),
            message(keys=keys),
            message(OTHERS["seed"]),
            message(OTHERS["kind"]),
            spoilt(message(sender="bad")),
        ]
        start = time.time()
        for one in sent:
            exchange.publish(one)
        held = exchange.holdings()
        assert [one.place for one in held] == sorted(one.place for one in held)
        assert {one.message for one in held if one.fault is None} == {*sent}
        for one in held:
            assert exchange.address in one.place
            assert one.when is None or start - 10 < one.when < time.time() + 10
        exchange.publish(withdrawal(message(), keys))
        left = {one.message for one in exchange.holdings() if one.fault is None}
        assert left == {*sent} - {sent[1]}

    # Threads and copies

    def test_threads_may_share_it(self, exchange: Exchange) -> None:
        failures: list[BaseException] = []
        start = threading.Barrier(6)

        def work(i: int) -> None:
            try:
                start.wait()
                for sequence in range(i, 60, 5):
                    exchange.publish(message(sender="shared", sequence=sequence))
                    exchange.publish(message(sender=f"own-{i}", sequence=sequence))
                    heard(exchange)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(5)]
        for thread in threads:
            thread.start()
        start.wait()
        latest = 0
        while any(thread.is_alive() for thread in threads):
            seen = sequences(exchange).get("shared", 0)
            assert seen >= latest
            latest = seen
        assert failures == []
        assert sequences(exchange) == {"shared": 59} | {f"own-{i}": 55 + i for i in range(5)}

    def test_it_can_be_taken_along(self, exchange: Exchange) -> None:
        """Whoever pickles a study's sampler, as Optuna's users do, pickles its exchange too."""
        exchange.publish(message())
        assert heard(pickle.loads(pickle.dumps(exchange))) == [message()]
