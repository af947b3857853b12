"""What a study sends and receives, and when; no trial waits for it.

`Mail` decides when there is a message to publish. That depends only on the study's trials, so all
workers of a study decide alike. `Courier` is the thread that carries messages; what goes wrong
there becomes a warning in the thread of the study. `standing_of` says under which name a study
takes part, and which key signs its messages: the first worker signs with its user's key, and the
study stores the public key. From then on, only a machine that has this private key publishes,
because peers would refuse any other signature.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import math
import os
import shlex
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

from optuna.trial import FrozenTrial, TrialState

from fedbo import caller
from fedbo.exchange import Exchange, ExchangeError, ExchangeWarning, Identity, Ledger, timing
from fedbo.exchange.hub.wire import Progress
from fedbo.exchange.ledger import NotOurs
from fedbo.federation.federation import Federation
from fedbo.identity import KeyPair, KeyRefused, Keyring, is_installed
from fedbo.message import Fingerprint, Heard, Message, Release
from fedbo.message.signed import SENDER_BYTES, key_text, member, parse_key
from fedbo.optuna import private
from fedbo.optuna.study import (
    SCORED,
    Mirror,
    StudyAgent,
    StudyChanged,
    StudyRecord,
    end_of,
    write_key,
)
from fedbo.space import Direction

_FIRST_NEWS = 0.5  # seconds that the first query waits for messages of peers
_LOOKS, _PAUSE = 200, 0.01  # how often, and at which interval, to look for trials being stored
_FIRST_DELAY, _LONGEST_DELAY = 1.0, 60.0  # seconds between attempts to publish in an outage
_PATIENCE = 30.0  # seconds without an answer
_LEAVING = 5.0  # seconds for everything that is left to be sent when the interpreter exits
_DRAWS = 16  # replays behind an estimate of trials saved: about a second for 50 trials
_GROWTH = 1.25  # times as many scores as behind the last estimate make another one

_INSTALL = "pip install 'fedbo[identity]'"
_TO_SIGN = f"leave out signed=False, and install the package cryptography ({_INSTALL})"
_ELSEWHERE = (
    "that private key is not on this machine: copy the file that fedbo identity show names where "
    "the study began, and run fedbo identity import FILE here"
)
_OTHER_NAME = "run it as another study with another name (name=...)"
_ONCE = "This warning is given once"


# As whom a study takes part


class Standing(NamedTuple):
    """How a study takes part at an exchange."""

    sender: str  # its name there
    keys: KeyPair | None = None  # that sign its messages; None if they are not signed
    silence: str = ""  # why nothing is published
    remark: str = ""  # what the user should know about signatures
    is_member: bool = True  # whether messages of peers come in

    @property
    def key(self) -> str:
        """The public key, as text; empty if messages are not signed."""
        return "" if self.keys is None else str(self.keys)


class _Silenced(ValueError):
    """A study cannot publish; the text says why."""


def sender_of(name: str, owner: str | None) -> str:
    """Return the name of a study at an exchange, as an agent of the member ``owner`` if any.

    >>> sender_of("liver", "clinic"), sender_of("clinic/lung", "clinic"), sender_of("liver", None)
    ('clinic/liver', 'clinic/lung', 'liver')
    """
    return name if owner in (None, member(name)) else f"{owner}/{name}"


def sender_at(exchange: Exchange, federation: Federation, record: StudyRecord) -> str:
    """Return the name of a study at an exchange; its own one while this user is no member."""
    with contextlib.suppress(ExchangeError):
        if identity := exchange.identity(federation):
            return sender_of(record.name, identity.member)
    return record.name


def standing_of(
    exchange: Exchange,
    federation: Federation,
    record: StudyRecord,
    signed: bool | None,
    keyring: Keyring,
) -> Standing:
    """Find out how a study takes part, and let the keyring know that the name is this user's.

    ``signed`` says whether to sign; None signs if the necessary package is installed.
    """
    try:
        identity = exchange.identity(federation)
    except ExchangeError as error:
        return Standing(record.name, silence=str(error), is_member=False)
    sender, key = record.name, record.key
    if identity is not None:
        sender = sender_of(sender, identity.member)
        if identity.key is not None:
            key = identity.key
            if signed and not key:
                return Standing(sender, silence=f"{identity.member!r} joined without a key")
            signed = signed if key else False
    if (size := len(sender.encode())) > SENDER_BYTES:
        silence = (
            f"its name would be {sender!r}, with {size} bytes, and at most {SENDER_BYTES} are "
            "possible: give a new study a shorter name"
        )
        return Standing(record.name, silence=silence, is_member=False)
    try:
        keys, remark = _keys_for(signed, key, sender, keyring)
        _check_listed(sender, keys, federation)
        if keys is not None and (fault := keyring.claim(sender, keys.public, federation)):
            raise _Silenced(fault)
    except _Silenced as error:
        return Standing(sender, silence=str(error))
    except (OSError, ValueError) as error:
        return Standing(sender, silence=f"its key cannot be used: {error}")
    return Standing(sender, keys, remark=remark)


def introduce(agent: StudyAgent, standing: Standing, keyring: Keyring) -> StudyRecord:
    """Let an agent speak as its standing says, and store the study's record and key."""
    record = agent.introduce()
    if not standing.silence and standing.key != record.key:
        write_key(agent.study, standing.key)
        record = agent.reread()
    agent.speak_as(standing.sender, None if standing.silence else standing.keys, keyring)
    return record


def withdraw(
    exchange: Exchange, ledger: Ledger, federation: Federation, record: StudyRecord
) -> bool:
    """Withdraw the message of a study; return whether there was one.

    Raises:
        ExchangeError: If only others have messages under its name, or withdrawing failed.
        KeyRefused: If the study's private key is not on this machine.
    """
    identity, sender, key = exchange.identity(federation), record.name, record.key
    if identity is not None:
        sender = sender_of(sender, identity.member)
        key = key if identity.key is None else identity.key
    keys = KeyPair.find(parse_key(key)) if key and is_installed() else None
    if key and keys is None:
        raise KeyRefused(f"messages of this study are signed with {key}, and {_ELSEWHERE}")
    return ledger.withdraw(exchange, federation, sender, keys=keys, study=record.study)


def _keys_for(
    signed: bool | None, key: str, sender: str, keyring: Keyring
) -> tuple[KeyPair | None, str]:
    """Return the keys that sign messages, and what the user should know about that."""
    peers = f"peers know this study by its key {key}"
    if signed is False:
        if key:
            raise _Silenced(f"{peers}, and refuse messages that are not signed: {_TO_SIGN}")
        return None, ""
    if not is_installed():
        if key:
            raise _Silenced(f"{peers}, and the package cryptography is not installed: {_INSTALL}")
        return None, (
            "messages of this study are not signed, because the package cryptography is not "
            "installed, so anyone who can write to the exchange can publish under its name. It "
            f"receives only messages that are not signed. To sign messages: {_INSTALL}. If they "
            "should not be signed, say so with signed=False"
        )
    if not key or key in keyring.revoked():
        own = KeyPair.load()
        own = KeyPair.retire() if str(own) in keyring.revoked() else own
        remark = (
            f"the key {key} of this study was revoked here, and it now signs with {own}: its "
            f"peers accept that after fedbo identity trust {shlex.quote(member(sender))} {own}"
        )
        return own, remark if key else ""
    keys = KeyPair.find(parse_key(key))
    if keys is None:
        raise _Silenced(f"{peers}, and {_ELSEWHERE}")
    return keys, ""


def _check_listed(sender: str, keys: KeyPair | None, federation: Federation) -> None:
    """Refuse a study that is not among the members that its federation lists."""
    if not federation.members:
        return
    name, listed = member(sender), federation.members.get(member(sender))
    if listed is None:
        members = ", ".join(map(repr, sorted(federation.members)))
        raise _Silenced(
            f"the federation lists its members, and {name!r} is not among them ({members}). Give "
            "one of these names to a new study, or ask whoever keeps the federation file to add "
            f"{name!r}" + ("" if keys is None else f" with its key {keys}")
        )
    if keys is None:
        raise _Silenced(
            f"the federation lists the key of {name!r}, and this study's messages are not signed: "
            f"{_TO_SIGN}"
        )
    if listed != keys.public:
        raise _Silenced(
            f"the federation lists {key_text(listed)} as the key of {name!r}, but this study has "
            f"{keys}: ask whoever keeps the federation file to correct it, or {_OTHER_NAME}"
        )


# When a study publishes


def due(scored: Sequence[FrozenTrial], every: int | None, direction: Direction) -> list[int]:
    """Return after how many scores a study publishes a message.

    This depends only on the trials, in the order in which they ended, so all workers agree.

    >>> values = (5.0, 4.0, 6.0, 6.0, 6.0, 1.0)
    >>> from optuna.trial import create_trial
    >>> trials = [create_trial(value=value) for value in values]
    >>> due(trials, None, "minimize"), due(trials, 2, "minimize")
    ([1, 2, 4, 6], [2, 4, 6])
    """
    sign = 1 if direction == "maximize" else -1
    values = [
        sign * trial.value
        if trial.state is TrialState.COMPLETE and trial.value is not None
        else -math.inf
        for trial in scored
    ]
    return timing.due(values, every)


def namesake(name: str) -> str:
    """Say why a study does not publish under the name of another one, and what to do."""
    return (
        f"another study of this user publishes under the name {name!r}: {_OTHER_NAME}. If that "
        "study is no longer needed, withdraw its message (fedbo study withdraw)"
    )


def is_of_another_study(ledger: Ledger, record: StudyRecord, message: Heard) -> bool:
    """Tell whether the ledger says that only other studies of this user sent this message."""
    content = base64.b64encode(message.encode()).decode()
    with caller.collect(), contextlib.suppress(ExchangeError):  # else nothing is sent, either
        entries = ledger.read(message.sender)
        studies = {entry.study for entry in entries if entry.study and entry.content == content}
        return bool(studies) and record.study not in studies
    return False


def fate_of(ledger: Ledger, address: str, message: Message) -> str:
    """Return what became of this message at an exchange.

    Returns:
        "sent", "undelivered" or "withdrawn", as in `fedbo.exchange.Ledger`; empty if it never left.
    """
    content = base64.b64encode(message.encode()).decode()
    place, fate = (address, str(Fingerprint(message.fingerprint))), ""
    for entry in ledger.read(message.sender):
        is_same = entry.content == content or (bool(fate) and entry.action == "withdrawn")
        if is_same and (entry.to, entry.federation) == place:
            fate = entry.action
    return fate


def progress_of(mirror: Mirror, trials: Sequence[FrozenTrial], saved: float | None) -> Progress:
    """Return how far a study has come, for the page of a hub."""
    values = [
        trial.value
        for trial in trials
        if trial.number in mirror.told and trial.state is TrialState.COMPLETE
    ]
    finite = [value for value in values if value is not None and math.isfinite(value)]
    best = max if mirror.agent.federation.space.sign > 0 else min
    return Progress(trials=mirror.scores, best=best(finite, default=None), saved=saved)


def saved_by_peers(mirror: Mirror) -> float | None:
    """Estimate how many trials peers have saved; None if there is no estimate.

    This takes about a second, and nobody else may use the agent meanwhile.
    """
    saved = mirror.agent.explain(_DRAWS).saved
    return None if saved is None else float(saved.median)


class Mail:
    """The messages of one study. The lock guards its agent; callers of the methods hold it."""

    def __init__(
        self,
        courier: Courier,
        agent: StudyAgent,
        keyring: Keyring,
        lock: threading.RLock,
        *,
        every: int | None,
        signed: bool | None,
        progress: bool,
    ) -> None:
        self._courier, self._agent, self._keyring, self._lock = courier, agent, keyring, lock
        self._signed, self._progress = signed, progress
        self._federation = courier.federation
        self._every = timing.rhythm(self._federation, every)
        self.standing: Standing | None = None  # as it was found last
        self._basis: tuple[StudyRecord, Identity | str | None] | None = None  # of the standing
        self._has_waited = False
        self._ended: set[int] = set()  # trials that ended here since the last message was made
        self._published = 0  # after how many scores the last message from here was made
        self._replaced: list[KeyPair | None] = []  # keys before these; None if there were none
        self._own: dict[bytes, bool] = {}  # whether messages under our name are another study's
        self._estimate: tuple[int, float | None] = 0, None  # of trials saved, after so many scores

    def take_part(self) -> Standing:
        """Find out how the study takes part, and let its agent speak under that name and key."""
        record, agent = self._agent.introduce(), self._agent
        try:
            identity: Identity | str | None = self._courier.exchange.identity(self._federation)
        except ExchangeError as error:
            identity = str(error)
        basis = record, identity
        if self.standing is not None and not self.standing.silence and basis == self._basis:
            return self.standing
        args = self._courier.exchange, self._federation, record, self._signed, self._keyring
        standing = self.standing = standing_of(*args)
        if standing.remark:
            agent.warn("signature", f"{standing.remark}. {_ONCE}", ExchangeWarning)
        if not standing.is_member:
            agent.warn(
                "alone",
                f"{standing.silence}. Until then, the study tunes alone: no message comes in or "
                f"goes out. It takes part by itself as soon as it can. {_ONCE}",
                ExchangeWarning,
            )
        elif standing.silence:
            self._warn_of_silence(standing.silence)
        now = introduce(agent, standing, self._keyring)
        self._basis = now, identity
        if now.key != record.key and not agent.is_new:
            self._replaced.append(KeyPair.find(parse_key(record.key)) if record.key else None)
        return standing

    def receive(self, mirror: Mirror, asking: int) -> None:
        """Let the agent hold what the exchange hands out; the first query waits for that."""
        if self.standing is None or not self.standing.is_member:
            return
        if not self._has_waited:
            self._has_waited = True
            self._courier.fetch()
            self._courier.wait_for_first(_FIRST_NEWS)
        messages = self._courier.messages
        if messages is None:
            return
        for reason in mirror.hear(messages):
            self._agent.warn("ignored", f"a message was ignored: {reason}", ExchangeWarning)
        if self._has_rival(mirror, messages):
            return
        published, others = self._under_our_name(mirror, messages)
        if published > mirror.scores:  # perhaps by another worker, after a trial that just ended
            with contextlib.suppress(StudyChanged):
                mirror.follow(private.get_trials(self._agent.study), asking)
        if published > mirror.scores or others:
            self._agent.warn(
                "name taken",
                f"{self._courier.exchange.address} has a message of {mirror.agent.name!r} that "
                "this study did not make: another study uses that name, or did, and peers may "
                f"receive its message instead of this study's. To avoid that, {_OTHER_NAME}",
                ExchangeWarning,
            )

    def end(self, trial: FrozenTrial, state: TrialState) -> None:
        """Publish a message if it is time for one, and look for messages of peers."""
        if self._agent.mirror is None or self.standing is None:
            return
        if self.standing.is_member:
            self._courier.fetch()
        if state in SCORED:
            self._ended.add(trial.number)
            self._courier.send(self._make)

    def _make(self) -> Letter | None:
        """Return the message to publish, or None if it is not time for one.

        The courier calls this in its own thread. Optuna stores a trial after it has told the
        sampler how it ended, and a message must not know more than the study. So this waits until
        the trials that have ended are stored.
        """
        with self._lock:
            ended = self._ended.copy()
        for _ in range(_LOOKS):
            trials = private.get_trials(self._agent.study)
            if all(trials[number].state.is_finished() for number in ended):
                break
            time.sleep(_PAUSE)
        self._withdraw_replaced()
        with self._lock:
            self._ended -= {number for number in ended if trials[number].state.is_finished()}
            record = self._agent.reread()
            if self.take_part().silence:
                return None
            mirror = self._agent.follow({})
            if not mirror.scores or self._has_rival(mirror, self._courier.messages or []):
                return None
            message = self._due_message(mirror, trials, ended)
            if message is None:
                return None
            twin = self._agent.twin() if self._progress else None
        if twin is None:
            return Letter(message, record.study)
        twin.follow(trials)  # an agent of its own, so that no query waits for the estimate
        if twin.scores >= _GROWTH * self._estimate[0]:
            self._estimate = twin.scores, saved_by_peers(twin)
        return Letter(message, record.study, progress_of(twin, trials, self._estimate[1]))

    def _withdraw_replaced(self) -> None:
        """Withdraw the message that is signed with another key than now, or was not signed."""
        courier, study = self._courier, self._agent.introduce().study
        while self._replaced and self.standing is not None:
            args = courier.exchange, self._federation, self.standing.sender
            with contextlib.suppress(NotOurs):  # the name belongs to another study now
                courier.ledger.withdraw(*args, keys=self._replaced[-1], study=study)
            self._replaced.pop()

    def _due_message(
        self, mirror: Mirror, trials: list[FrozenTrial], ended: set[int]
    ) -> Message | None:
        """Return the last message that was due; None if there is no reason to publish it now.

        It is published after the trial that asks for it, and once more if the exchange lacks it
        though it was not withdrawn: a worker was killed, or somebody removed it. It depends only on
        the trials up to that one: whoever removes it again and again gets no fresh noise.
        """
        scored = sorted((trial for trial in trials if trial.number in mirror.told), key=end_of)
        counts = due(scored, self._every, self._federation.space.direction)
        n = counts[-1] if counts else 0
        if n <= self._published:
            return None
        is_new = any(scored[count - 1].number in ended for count in counts)
        if not is_new and not self._is_missing(mirror, n):
            return None
        self._published = n
        message = self._agent.only(scored[:n]).agent.message()
        courier, fate = self._courier, ""
        if not is_new:
            with contextlib.suppress(ExchangeError):  # nothing can be sent either, which is said
                fate = fate_of(courier.ledger, courier.exchange.address, message)
        return None if fate == "withdrawn" else message

    def _is_missing(self, mirror: Mirror, n: int) -> bool:
        """Whether the exchange lacks the message after n scores."""
        messages = self._courier.messages
        if messages is None or self._federation.privacy is not None:
            return False  # contributions are not handed out, so that nobody can tell
        published, others = self._under_our_name(mirror, messages)
        return published < n and not others

    def _under_our_name(self, mirror: Mirror, messages: Sequence[Heard]) -> tuple[int, bool]:
        """Return the latest sequence of our message, and whether another's has our name."""
        agent, key = mirror.agent, self._agent.introduce().key
        named = [m for m in messages if isinstance(m, Message) and m.sender == agent.name]
        own = [message.sequence for message in named if message.signer == agent.signer]
        others = any(message.signer not in (agent.signer, key) for message in named)
        return max(own, default=0), others

    def _has_rival(self, mirror: Mirror, messages: Sequence[Heard]) -> bool:
        """Whether another study of this user publishes under this name; if so, warn."""
        record, agent = self._agent.introduce(), mirror.agent
        for message in messages:
            if (message.sender, message.signer) == (agent.name, agent.signer):
                content = message.encode()
                if content not in self._own:
                    ledger = self._courier.ledger
                    self._own = {content: is_of_another_study(ledger, record, message)}
                if self._own[content]:
                    self._warn_of_silence(namesake(agent.name))
                    return True
        return False

    def _warn_of_silence(self, reason: str) -> None:
        still = "The study goes on, and still receives messages"
        if not is_installed():
            still = "The study goes on. It receives only messages that are not signed"
        self._agent.warn(
            "silent",
            f"no message of this study is published from here: {reason}. {still}. {_ONCE}",
            ExchangeWarning,
        )


# The thread


class Letter(NamedTuple):
    """A message to publish, what the ledger calls the study that sends it, and its progress."""

    message: Message
    study: str = ""
    progress: Progress | None = None


Errand = Literal["make", "publish", "fetch"]

_TITLES: dict[Errand, str] = {
    "make": "This study's message was not made",
    "publish": "This study's message was not published",
    "fetch": "Messages of peers were not fetched",
}


class Courier:
    """Carries messages to and from an exchange; the ledger logs each before it is sent.

    Even if the exchange fails or hangs, only `wait_for_first` and `flush` wait for it. The ledger
    has a line for each attempt. So in an outage there are pauses of 1, 2, 4 … 60 seconds in which
    nothing is published.
    """

    def __init__(self, exchange: Exchange, ledger: Ledger, federation: Federation) -> None:
        self.exchange, self.ledger, self.federation = exchange, ledger, federation
        self.restart()

    def restart(self) -> None:
        """Forget all errands."""
        self._changed = threading.Condition()
        self._is_running = self._is_sending = self._is_wanted = False
        self._outgoing: Callable[[], Letter | None] | None = None
        self._unsent: Letter | None = None  # failed or held, and is tried with a later errand
        self._delay, self._delay_ends = _FIRST_DELAY, 0.0
        self._fetched: list[Heard] | None = None
        self._complaints: list[str] = []
        self._told: set[str] = set()  # complaints that are not repeated: errands, and warnings
        self._failing: set[Errand] = set()  # that failed the last time
        self._answers_since: float | None = None  # when the running errand began
        _couriers.add(self)

    def __reduce__(self) -> tuple[type[Courier], tuple[Exchange, Ledger, Federation]]:
        return Courier, (self.exchange, self.ledger, self.federation)

    def __deepcopy__(self, memo: dict[int, Any]) -> Courier:
        return Courier(self.exchange, self.ledger, self.federation)  # the same, and no copies

    # What the sampler asks for

    def send(self, make: Callable[[], Letter | None]) -> None:
        """Make a message and publish it soon; it replaces any that is not made yet.

        ``make`` is called in the courier's thread. It must not wait for a lock that the caller of
        `flush` holds.
        """
        with self._changed:
            self._outgoing = make
            self._wake()

    def fetch(self) -> None:
        """Fetch messages soon."""
        with self._changed:
            self._is_wanted = True
            self._wake()

    @property
    def messages(self) -> list[Heard] | None:
        """What the exchange handed out when it last did; None if it has not done so yet."""
        with self._changed:
            return self._fetched

    def complaints(self) -> list[str]:
        """Return what went wrong since the last call."""
        with self._changed:
            begun = self._answers_since
            if begun is not None and time.monotonic() - begun > _PATIENCE:
                self._complain(
                    "unanswered",
                    f"{self.exchange.address} has not answered for more than {_PATIENCE:g} "
                    "seconds. The study goes on without it: no message comes in or goes out until "
                    f"it answers. {_ONCE} until then",
                )
            complaints, self._complaints = self._complaints, []
            return complaints

    def wait_for_first(self, seconds: float) -> None:
        """Wait until messages are fetched, or fetching has failed; give up after ``seconds``."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._fetched is not None or "fetch" in self._failing, seconds
            )

    def flush(self, seconds: float) -> bool:
        """Wait until everything is sent, or has failed; return whether it is so."""
        with self._changed:
            self._delay_ends = 0.0
            if self._outgoing is None and self._unsent is not None:
                self._outgoing = lambda: None  # try an unsent message once more
            if self._outgoing is not None:
                try:
                    self._wake()
                except RuntimeError:  # the interpreter is shutting down
                    return False
            return self._changed.wait_for(lambda: not (self._outgoing or self._is_sending), seconds)

    def leave(self, seconds: float) -> list[str]:
        """Send what is left when a program ends, and return what went wrong."""
        is_late = not self.flush(seconds)
        with self._changed:
            complaints = [*self._complaints]
            if is_late or self._unsent is not None:
                late = f"{self.exchange.address} did not answer in time: " if is_late else ""
                complaints.append(
                    f"{late}the last message of this study was not delivered. It is sent when the "
                    "study goes on, or with fedbo study publish"
                )
            return complaints

    # The errands

    def _wake(self) -> None:
        if not self._is_running:
            threading.Thread(target=self._run, name="fedbo courier", daemon=True).start()
            self._is_running = True

    def _run(self) -> None:
        while True:
            with self._changed:
                make, self._outgoing = self._outgoing, None
                is_wanted, self._is_wanted = self._is_wanted, False
                self._is_running = make is not None or is_wanted
                if not self._is_running:
                    return
                self._is_sending = make is not None or self._unsent is not None
            if is_wanted:
                with self._errand("fetch"):
                    self._fetch()
            if self._is_sending:
                self._send(make)

    def _fetch(self) -> None:
        heard = self.exchange.fetch(self.federation)
        for message in heard:
            if isinstance(message, Release):
                self.ledger.receive(message)
        with self._changed:
            self._fetched = heard
            self._changed.notify_all()

    def _send(self, make: Callable[[], Letter | None] | None) -> None:
        """Make a message and publish it; if there is none, publish the one that failed before."""
        letter = None
        if make is not None:
            with self._errand("make"):
                letter = make()
        with self._changed:
            letter = self._unsent if letter is None else letter
            if letter is None or time.monotonic() < self._delay_ends:
                self._hold(letter)
                return
        is_done = False
        with self._errand("publish"):
            self.ledger.publish(self.exchange, *letter)
            is_done = True
        with self._changed:
            if is_done:
                self._delay = _FIRST_DELAY
            else:
                self._delay_ends = time.monotonic() + self._delay
                self._delay = min(2 * self._delay, _LONGEST_DELAY)
            self._hold(None if is_done else letter)

    def _hold(self, letter: Letter | None) -> None:
        """Keep a letter for a later errand, or none; the caller has the lock."""
        self._unsent, self._is_sending = letter, False
        self._changed.notify_all()

    @contextlib.contextmanager
    def _errand(self, errand: Errand) -> Iterator[None]:
        """Turn an error and warnings in the body into complaints.

        This thread has no line of the user's program that a warning could point at. If publishing
        and fetching fail for the same outage, one complaint is enough.
        """
        with self._changed:
            self._answers_since = None if errand == "make" else time.monotonic()
        problem: Exception | None = None
        with caller.collect() as warnings:
            try:
                yield
            except Exception as error:
                problem = error
        with self._changed:
            self._answers_since = None
            for text in warnings:
                self._complain(text, text)
            if problem is None:
                self._failing.discard(errand)
                self._told -= {errand, "unanswered"}  # if it fails again, that is another outage
                return
            if self._failing <= {errand} or errand == "make":
                reason = str(problem)
                if not isinstance(problem, ExchangeError):
                    reason = f"{type(problem).__name__}: {problem}"
                self._complain(
                    errand,
                    f"{_TITLES[errand]}: {reason}. The study goes on. This is tried again after "
                    f"later trials. {_ONCE} until then",
                )
            if errand != "make":
                self._failing.add(errand)
            self._changed.notify_all()

    def _complain(self, about: str, text: str) -> None:
        if about not in self._told:
            self._told.add(about)
            self._complaints.append(text)


_couriers: weakref.WeakSet[Courier] = weakref.WeakSet()


@atexit.register
def _leave() -> None:
    """Send what all couriers together have left when the interpreter exits."""
    until = time.monotonic() + _LEAVING
    for courier in list(_couriers):
        for complaint in courier.leave(max(0.0, until - time.monotonic())):
            caller.warn(complaint, ExchangeWarning)


def _after_fork() -> None:
    """A forked child has neither the thread nor its errands: they belong to the parent."""
    for courier in list(_couriers):
        courier.restart()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
