"""A site of a fleet: an agent in a file of its own, which outlives every run of Flower.

A folder of the site holds ``agent.fedbo`` (the agent with all its trials), ``ledger.jsonl`` (what
left the site) and ``known_keys.json`` (the keys of its peers). The agent is saved after every query
and after every score. So a site that is killed loses at most the work on one trial: when it is
started again, it evaluates that trial first.
"""

from __future__ import annotations

import contextlib
import logging
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from fedbo.agent import Agent
from fedbo.agent.settings import Settings
from fedbo.agent.trial import Trial
from fedbo.exchange import Ledger
from fedbo.federation import Federation
from fedbo.identity import KeyPair, KeyRefused, Keyring
from fedbo.identity.claim import member
from fedbo.locks import alone
from fedbo.message import Heard, MessageRefused, Release, Withdrawal, read
from fedbo.outside import shortened
from fedbo.policy import Policy
from fedbo.space.axis import Value
from fedbo.state import make_folder

#: Scores params; None is a failed trial.
Score = Callable[[dict[str, Value]], float | None]

log = logging.getLogger("flwr")  # Flower shows what is logged there

_FILE, _LEDGER, _KEYS = "agent.fedbo", "ledger.jsonl", "known_keys.json"
_LONGEST = 300  # characters of an error from outside


class SiteBusy(RuntimeError):
    """Another process works with the files of the site."""


class Site:
    """The agent of a site, in a folder.

    Args:
        folder: The folder of this site, and of no other; it is created when it is needed.
        name: What peers know the site by.
        federation: What all sites agree on.
        policy: How queries are chosen; the default policy if None.
        settings: How the agent starts and models its objective.
        seed: Seeds the agent, for simulations. Leave it out if messages must stay private.

    >>> import tempfile
    >>> from fedbo import Federation, Float
    >>> federation = Federation({"x": Float(0, 1)})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     site = Site(Path(folder), "site-a", federation, seed=0)
    ...     answer = site.work([], 3, lambda params: -abs(params["x"] - 0.3))
    ...     len(site.agent().trials), len(answer) > 0
    (3, True)
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        federation: Federation,
        *,
        policy: Policy | None = None,
        settings: Settings | None = None,
        seed: int | None = None,
    ) -> None:
        self.folder, self.name, self.federation = folder, name, federation
        self._policy, self._settings, self._seed = policy, settings, seed

    @property
    def path(self) -> Path:
        """The file with the agent."""
        return self.folder / _FILE

    def agent(self) -> Agent:
        """Return the agent with all its trials so far; a new one if there is none yet."""
        keys = self._keys()
        keyring, ledger = Keyring(self.folder / _KEYS), Ledger(self.folder / _LEDGER)
        if not self.path.exists():
            return Agent(
                self.federation,
                self._policy,
                name=self.name,
                seed=self._seed,
                settings=self._settings,
                keys=keys,
                keyring=keyring,
                ledger=ledger,
            )
        agent = Agent.load(
            self.path, self._policy, self._settings, keys=keys, keyring=keyring, ledger=ledger
        )
        agent.move(self.federation)  # or an error that names the difference
        if agent.name != self.name:
            raise ValueError(
                f"{self.path} holds the agent {agent.name!r}, but this site is called "
                f"{self.name!r}: give each site its own folder, or its earlier name"
            )
        return agent

    def work(
        self, heard: Sequence[bytes], trials: int, score: Score, *, patience: float = 60.0
    ) -> bytes:
        """Hear what peers say, run some trials, and return the message to hand out.

        A trial that was begun before and not finished counts as the first. A trial whose
        evaluation raises an exception has failed; if all of them raise one, so does this.

        Args:
            heard: The messages of peers, or a private release: all that the site may hear now.
            trials: How many trials to run.
            score: Scores params.
            patience: Seconds to wait until another process has finished with this site.

        Returns:
            The bytes of the message; empty if there is no score to tell of yet.
        """
        make_folder(self.folder)
        with self._lock(patience):
            agent = self.agent()
            hear(agent, heard)
            agent.save(self.path)
            errors = [self._run(agent, trial, score) for trial in _queries(agent, trials)]
            if trials and all(errors):
                raise RuntimeError(
                    f"all {trials} trials of {self.name!r} failed, the last one with {errors[-1]}; "
                    "the log of the site has the whole errors"
                )
            if not any(trial.score is not None for trial in agent.trials):
                return b""
            message = agent.message()
            agent.save(self.path)
            return message.encode()

    def _run(self, agent: Agent, trial: Trial, score: Score) -> str:
        """Evaluate one trial and record its score; return the error if there was one."""
        agent.save(self.path)
        value, error = None, ""
        try:
            value = score(dict(trial.params))
            if value is not None and not math.isfinite(value):
                error = f"a score of {value}, expected a finite number or None"
                value = None
        except Exception as raised:
            log.exception("trial %d of %s with %s failed", trial.number, self.name, trial.params)
            error = f"{type(raised).__name__}: {shortened(str(raised), _LONGEST)}"
        agent.tell(trial, value)
        agent.save(self.path)
        return error

    @contextlib.contextmanager
    def _lock(self, patience: float) -> Iterator[None]:
        """Keep other processes from working with this site."""
        deadline = time.monotonic() + patience
        while True:
            with alone(self.folder) as is_locked:
                if is_locked or sys.platform == "win32":  # there are no such locks on Windows
                    yield
                    return
            if time.monotonic() > deadline:
                raise SiteBusy(
                    f"another process has worked with {self.folder} for {patience:g} s: wait until "
                    "it has finished, and give each site its own folder"
                )

    def _keys(self) -> KeyPair | None:
        """Return the key pair that signs messages, if the federation lists its members."""
        if not self.federation.members:
            return None
        listed = self.federation.members.get(member(self.name))
        if listed is None:
            raise KeyRefused(
                f"{self.name!r} is not among the members that the federation lists: "
                f"{', '.join(sorted(self.federation.members))}; give the site one of these names, "
                "or ask whoever keeps the federation file to add it"
            )
        keys = KeyPair.find(listed)
        if keys is None:
            raise KeyRefused(
                f"the federation lists a key of {self.name!r}, and its private key is not on this "
                "machine: import it (fedbo identity import FILE)"
            )
        return keys


def hear(agent: Agent, heard: Sequence[bytes]) -> int:
    """Take messages of peers in place of all earlier ones; return how many are held.

    Those that are refused are logged and ignored: one bad message must not silence the others.

    Args:
        agent: The agent that hears them.
        heard: The bytes of messages and releases.
    """
    try:
        messages = [read(data) for data in heard]
        agent.receive(heard)
    except MessageRefused:
        messages = [message for data in heard if (message := _taken(agent, data)) is not None]
    senders = {message.sender for message in messages}
    senders |= {name for one in messages if isinstance(one, Release) for name in one.names}
    agent.forget([sender for sender in agent.inbox.senders if sender not in senders])
    return len(agent.inbox)


def _taken(agent: Agent, data: bytes) -> Heard | Withdrawal | None:
    """Take one message; log the reason and return None if it is refused."""
    try:
        message = read(data)
        agent.receive(data)
        return message
    except MessageRefused as error:
        log.warning("%s ignores a message: %s", agent.name, error)
        return None


def _queries(agent: Agent, trials: int) -> Iterator[Trial]:
    """Yield the trials that were begun and not finished, then new ones."""
    begun = [trial for trial in agent.trials if trial.state == "pending"]
    for i in range(trials):
        yield begun[i] if i < len(begun) else agent.ask()
