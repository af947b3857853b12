"""A site of a fleet: an agent in a file of its own, which outlives every run of Flower.

A folder of the site holds ``agent.fedbo`` (the agent with all its trials) and ``ledger.jsonl``
(what left the site). The agent is saved after every query and after every score. So a site that is
killed loses at most the work on one trial: when it is started again, that trial has failed.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedbo.agent.agent import Agent
from fedbo.agent.settings import Settings
from fedbo.errors import MessageRefused
from fedbo.exchange import Ledger
from fedbo.federation.federation import Federation
from fedbo.files import alone
from fedbo.flower.wire import log
from fedbo.message import Release, Withdrawal
from fedbo.policy import Policy
from fedbo.space.axis import Value
from fedbo.state import make_folder
from fedbo.trust import Border, KeyPair, listed_keys

#: Scores params; None is a failed trial.
Score = Callable[[dict[str, Value]], float | None]

_FILE, _LEDGER, _LOCK = "agent.fedbo", "ledger.jsonl", "lock"


class SiteBusy(RuntimeError):
    """Another process works with the files of the site."""


class TrialsFailed(RuntimeError):
    """All trials of a round failed. The text has no more than the kinds of errors: it is sent."""


@dataclass(frozen=True)
class Site:
    """The agent of a site, in a folder.

    Args:
        folder: The folder of this site, and of no other; it is created when it is needed.
        name: What peers know the site by.
        federation: What all sites agree on. The site signs with its listed key, or else with a
            key of its own in its folder.
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

    folder: Path
    name: str
    federation: Federation
    policy: Policy | None = None
    settings: Settings | None = None
    seed: int | None = None

    @property
    def path(self) -> Path:
        """The file with the agent."""
        return self.folder / _FILE

    def agent(self) -> Agent:
        """Return the agent with all its trials so far; a new one if there is none yet."""
        keys = listed_keys(self.federation, self.name) or KeyPair.own(self.folder)
        ledger = Ledger(self.folder / _LEDGER)
        own: dict[str, Any] = {"settings": self.settings, "keys": keys, "ledger": ledger}
        if not self.path.exists():
            return Agent(self.federation, self.policy, name=self.name, seed=self.seed, **own)
        agent = Agent.load(self.path, self.policy, **own)
        if agent.name != self.name:
            raise ValueError(
                f"{self.path} holds the agent {agent.name!r}, but this site is called "
                f"{self.name!r}: give each site its own folder, or its earlier name"
            )
        agent.set_members(self.federation)  # or an error that names the difference
        return agent

    def work(
        self, heard: Sequence[bytes], trials: int, score: Score, *, patience: float = 60.0
    ) -> bytes:
        """Hear what peers say, run some trials, and return the message to hand out.

        A trial whose process was killed has failed, and so has one whose evaluation raises an
        exception; if all of them raise one, so does this.

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
            for trial in agent.trials:
                if trial.state == "pending":
                    log.warning("%s was killed in trial %d: it failed", self.name, trial.number)
                    agent.tell(trial, None)
            listen(agent, heard)
            errors = [self._run(agent, score) for _ in range(trials)]
            if trials and all(errors):
                raise TrialsFailed(
                    f"all {trials} trials of {self.name!r} failed ({', '.join(sorted({*errors}))});"
                    " the log of the node says more"
                )
            messages = Agent.messages([agent])
            agent.save(self.path)
            return messages[0].encode() if messages else b""

    def _run(self, agent: Agent, score: Score) -> str:
        """Run one trial; return the kind of error if there was one."""
        trial, error = agent.ask(), ""
        agent.save(self.path)
        try:
            agent.tell(trial, score(dict(trial.params)))
        except Exception as raised:
            error = type(raised).__name__
            log.exception("trial %d of %s failed, %s", trial.number, self.name, trial.params)
            agent.tell(trial, None)
        agent.save(self.path)
        return error

    @contextlib.contextmanager
    def _lock(self, patience: float) -> Iterator[None]:
        """Keep other processes from working with this site, where files can be locked."""
        path, begin = self.folder / _LOCK, time.monotonic()
        path.touch()
        with alone(path, patience) as is_locked:
            if not is_locked and time.monotonic() - begin >= patience:
                raise SiteBusy(
                    f"another process has worked with the files of {self.name!r} for more than "
                    f"{patience:g} s: wait until it has finished, and give each site its own folder"
                )
            yield


def listen(agent: Agent, heard: Sequence[bytes]) -> None:
    """Take messages of peers in place of all earlier ones.

    Those that are refused are logged and ignored: a bad message must not silence the others.
    """
    senders: set[str] = set()
    for opened in Border(agent.federation, agent.keyring).admit(heard):
        try:
            if isinstance(opened, MessageRefused):
                raise opened
            message = opened.content
            if isinstance(message, Withdrawal):
                raise MessageRefused("it is a withdrawal, expected a message or a release")
            agent.receive(opened)
            senders |= {*message.names} if isinstance(message, Release) else {message.sender}
        except MessageRefused as error:
            log.warning("%s ignores a message: %s", agent.name, error)
    agent.forget([sender for sender in agent.inbox.senders if sender not in senders])
