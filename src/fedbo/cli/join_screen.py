"""`fedbo join` in a terminal: run a study, preview its next message, or withdraw its messages."""

from __future__ import annotations

import contextlib
import os
import shlex
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import optuna
import typer
from optuna.trial import TrialState
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from fedbo.agent import Settings
from fedbo.cli import checks, screen
from fedbo.cli.ledger import show_message
from fedbo.exchange import Entry, Exchange, ExchangeError, FolderExchange, Ledger
from fedbo.exchange.ledger import NotOurs
from fedbo.federation import Federation
from fedbo.identity import KeyPair
from fedbo.message import Fingerprint, Message
from fedbo.optuna import join, objective, publish, record, signing, studies
from fedbo.optuna.join import FAILURES, Ending, Interrupt, Site, Step
from fedbo.optuna.standing import Standing, standing_at
from fedbo.policy import Origin

_SOURCES = {
    "initial": "an initial point",
    "tip": "a tip of peers",
    "own": "its own model",
    "pool": "the pool of peers",
    "peer": "one peer",
    "told": "outside the federation",
}
_FINISHED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)
_PEERS = 3  # named for one query
_AGES = 24 * 3600.0  # seconds that the estimate of the remaining time looks back
_ONCE = "Ctrl-C: stopping after this trial; press it again to abandon the trial."


class Given(NamedTuple):
    """The exchange, the federation and the study that were given, and the name of the site."""

    exchange: Exchange
    file: Path
    agreed: Federation | None  # what is in the file; None if it was not given and not read
    storage: str
    study: str
    name: str | None

    @property
    def federation(self) -> Federation:
        return self.agreed or checks.federation("--federation", self.file)

    def find(self) -> optuna.Study | None:
        """Find the study; None if it does not exist. Raise if it does not fit."""
        there = studies.find(self.storage, self.study)
        if there is not None:
            join.check(there, self.federation)
        return there

    def __str__(self) -> str:
        return f"study {self.study!r} in {studies.shown(self.storage)}"


def run(given: Given, address: str, trials: int, **options: Any) -> None:
    """Run the study until it has enough trials; the options are those of its sampler."""
    federation, ledger = given.federation, join.CountedLedger()
    function = objective.load(address, federation.space)
    sampler = join.sampler(federation, given.exchange, name=given.name, ledger=ledger, **options)
    given.find()  # raises, before anything is created, if it does not fit
    study = studies.create(given.storage, given.study, federation.space.direction, sampler)
    watching = JoinScreen(Console(), join.Site(study, sampler, function, ledger), trials)
    watching.introduce(given.exchange, studies.shown(given.storage))
    ending = watching.run()
    if ending != "done":
        raise typer.Exit(checks.INTERRUPTED if ending == "stopped" else 1)


def preview(given: Given, seed: int | None, signed: bool | None, settings: Settings) -> None:
    """Print the next message, and send nothing."""
    study, message, federation = given.find(), None, given.federation
    if study is not None:
        name = publish.named(study, given.exchange, federation, given.name)
        sampler = join.sampler(federation, None, name=name, seed=seed, settings=settings)
        message = sampler.preview(study)
    console, to = Console(), given.exchange.address
    if study is None or message is None:
        missing = given if study is None else f"score in {given}"
        screen.say(console, f"There is no {missing}, so there is nothing to send yet.")
        return
    has_asked = record.identity(study) is not None
    about = {} if has_asked or given.name else {"agent": "a random name, chosen at the first trial"}
    if has_asked and (known := record.identity(study)) is not None and known.key:
        about["signature"] = f"113 bytes more, with the key {known.key}"
    title = f"The message that would be sent to {screen.printable(to)} if one were due now"
    hindrance = publish.hindrance(study, given.exchange, federation, given.name, signed, Ledger())
    if hindrance:
        title = f"This message would not be sent to {screen.printable(to)}: {hindrance}."
    screen.say(console, title, "yellow" if hindrance else "bold")
    show_message(console, message, about, federation)
    remark = "A message is due after a new best score, or when there are twice as many scores."
    if _was_sent(message, to):
        remark = "This very message was sent before: see fedbo ledger."
    elif not has_asked and seed is None:
        remark = (
            "The study has not run a trial in this federation yet. The noise is drawn again at "
            "the first one, so the numbers will differ."
        )
    screen.say(console, f"\nNothing was sent. {remark}")


def _was_sent(message: Message, to: str) -> bool:
    """Tell whether the exchange has taken this message, signed or not, according to the ledger."""
    was_sent = False
    for entry in Ledger().read(message.sender):
        if entry.to != to or entry.action not in ("sent", "undelivered"):
            continue
        with contextlib.suppress(ValueError):  # an entry that cannot be read is of another message
            if entry.message().content == message.content:
                was_sent = entry.action == "sent"
    return was_sent


def withdraw(given: Given) -> None:
    """Withdraw the messages of this site, and print what that means."""
    study = studies.find(given.storage, given.study)
    known = None if study is None else record.identity(study)
    is_own = known is not None and not known.federation and given.agreed is None
    if study is not None and is_own:
        federations = join.own_federations(study)
    else:
        given.find()  # raises if it does not fit
        federations = [given.federation]
    standing = standing_at(given.exchange, federations[0]) if federations else Standing()
    sender = None if given.name is None else standing.name(given.name)
    if sender is None and known is not None:
        sender = known.name
    if sender is None:
        try:
            studies.existing(given.storage, given.study)
        except ValueError as error:
            raise ValueError(f"{error}. Give the study with --study") from None
        raise ValueError(
            f"{given} has not run a trial, so it has no name among peers: give the storage of a "
            "study that has, or the name with --name"
        )
    ledger, place = Ledger(), given.exchange
    keys = signing.keys_of(standing.key if known is None else known.key)
    identity = None if known is None else known.study
    which = "the federation of its parameters" if is_own else "this federation"
    text = (
        f"There is no message of {sender!r} for {which} in {place.address}, so there is nothing to "
        "withdraw."
    )
    if _withdraw_all(ledger, place, federations, sender, keys, identity):
        text = (
            f"The message of {sender!r} was withdrawn from {place.address}. Peers forget it when "
            "they look there again; what they learnt from it stays in their trials. The "
            f"withdrawal is recorded in {ledger.path}. If the study continues, it sends messages "
            "again."
        )
    screen.say(Console(), text)
    by_name = sender if given.name is not None or identity is None else None
    if left := _remaining(ledger, place, by_name, None if by_name else identity):
        _say_remaining(left, place.address, is_free=known is not None and not known.federation)
        raise typer.Exit(1)


def _withdraw_all(
    ledger: Ledger,
    place: Exchange,
    federations: Sequence[Federation],
    sender: str,
    keys: KeyPair | None,
    study: str | None,
) -> bool:
    """Withdraw the sender's messages for these federations; return whether there were any."""
    is_gone, others = False, None
    for federation in federations:
        try:
            is_gone |= ledger.withdraw(place, federation, sender, keys=keys, study=study)
        except NotOurs as error:
            others = error
    if others is not None and not is_gone:
        raise others
    return is_gone


def _remaining(
    ledger: Ledger, place: Exchange, agent: str | None, study: str | None
) -> list[Entry]:
    """Return what this agent or study has sent to the exchange, and what is still there."""
    entries = ledger.outstanding(place.address, agent, study)
    if not entries:
        return []
    try:
        held = [one.message for one in place.holdings() if one.fault is None]
    except ExchangeError:  # it cannot list what it holds
        return entries
    there = {
        (one.sender, str(Fingerprint(one.fingerprint)))
        for one in held
        if one is not None and (study is None or ledger.studies_of(one) <= {study})
    }
    return [entry for entry in entries if (entry.agent, entry.federation) in there]


def _say_remaining(left: Sequence[Entry], address: str, *, is_free: bool) -> None:
    """Say which messages are still there, and how to withdraw them."""
    console = Console()
    screen.say(console, f"\nThese messages of this site are still in {address}:", "yellow")
    for entry in left:
        when = entry.when[:16].replace("T", " ")
        text = f"of {entry.agent!r}, for federation {entry.federation}, sent {when} UTC"
        screen.say(console, text, indent=2)
    advice = "To withdraw one, run this command again with --federation FILE, the file of its"
    advice += " federation, and with --name if the study has another name now."
    if is_free:
        advice += " Without --federation, the messages of a study that has no file are withdrawn."
    screen.say(console, advice)


class JoinScreen:
    """Shows a site at work: a line for each trial and, in a terminal, a progress bar below."""

    def __init__(self, console: Console, site: Site, trials: int) -> None:
        self._console, self._site, self._trials = console, site, trials
        self._interrupt = Interrupt(self._notice)
        self._running: int | None = None
        self._origin: Origin | None = None
        self._last_failure = ""
        self._bar = Progress(
            TextColumn("trials"),
            BarColumn(bar_width=36),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=console,
            speed_estimate_period=_AGES,
        )
        self._task = self._bar.add_task("", total=trials)
        self._look()

    def _look(self) -> None:
        """Update from the study; called once for each trial, because it reads the storage."""
        self._finished, self._best = self._site.finished, self._site.best
        self._bar.update(self._task, completed=min(self._finished, self._trials))

    def begun(self, number: int, origin: Origin | None) -> None:
        self._running, self._origin = number, origin

    def ended(self, step: Step) -> None:
        self._running = None
        self._look()
        if step.why:
            self._last_failure = step.why
        line = _line(step)
        if not self._console.is_terminal:
            if self._finished >= self._trials or self._interrupt.asked:
                self._site.sampler.flush()  # so that the last line counts the last message
            so_far = f"{self._finished} of {self._trials}"
            line.append(f"  ({so_far}; messages: {_traffic(self._site)})")
        self._console.print(line, soft_wrap=True)

    def run(self) -> Ending:
        """Run the site until it has enough trials, and print what happens."""
        ending: Ending = "done"
        if self._finished < self._trials:
            live = Live(get_renderable=self._picture, console=self._console, transient=True)
            with self._interrupt, live if self._console.is_terminal else contextlib.nullcontext():
                ending = self._site.run(self._trials, self, self._interrupt)
        self._site.sampler.flush()
        self._look()
        self._end(ending)
        return ending

    def introduce(self, place: Exchange, storage: str) -> None:
        """Print what will run, and where everything is."""
        site = self._site
        begun = len(site.study.get_trials(deepcopy=False))
        state = f"{self._finished} of {self._trials} trials finished" if begun else "new"
        known = record.identity(site.study)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "peers knew this study as")  # said below
            signed = site.sampler.introduce(site.study)
        renamed = ""
        if known is not None and known.name != site.name:
            renamed = f" (until now {known.name!r}; its message under that name is withdrawn)"
        is_new = isinstance(place, FolderExchange) and not place.folder.exists()
        made = ", a folder that the first message creates" if is_new else ""
        screen.say(
            self._console,
            f"Study {site.study.study_name!r} in {screen.printable(storage)} ({state}): "
            f"{site.study.direction.name.lower()} {site.objective.name}. "
            f"Peers know it as {site.name!r}{renamed}. "
            f"Messages go through {screen.printable(place.address)}{made}. {signed}".rstrip()
            + "\n",
        )

    def _picture(self) -> RenderableType:
        state = "best none yet"
        if self._best is not None:
            state = f"best {self._best.value:.6g} in trial {self._best.number}"
        if self._running is not None:
            state += f"; trial {self._running} is running"
            state += "" if self._origin is None else f", from {_words(self._origin)}"
        lines = [Text(state), Text(f"messages: {_traffic(self._site)}", style="dim")]
        if self._interrupt.asked:
            lines.append(Text(_ONCE, style="yellow"))
        return Group(self._bar, *lines)

    def _notice(self) -> None:
        if not self._console.is_terminal:  # a terminal shows it below the bar
            os.write(2, f"{_ONCE}\n".encode())  # safe in a signal handler

    def _end(self, ending: Ending) -> None:
        finished = f"{self._finished} of {self._trials} trials are finished"
        if ending == "stopped":
            abandoned = ""
            if self._running is not None:
                abandoned = f"Trial {self._running} was abandoned, and is marked as failed. "
            text = f"Stopped: {finished}. {abandoned}Run the same command again to resume."
            screen.say(self._console, text, "yellow")
        elif ending == "failing":
            text = (
                f"{FAILURES} trials in a row failed, the last with {self._last_failure}. {finished}"
                "; none of them is lost. Repair the objective, and run the same command again."
            )
            screen.say(self._console, text, "red")
        _report(self._console, self._site)


def _report(console: Console, site: Site) -> None:
    """Print the best trial, the sources of the queries, and how many messages there were."""
    best = site.best
    if best is None:
        pruned = len(site.trials(TrialState.PRUNED))
        why = f"all {pruned} finished trials were pruned" if pruned else "none is finished"
        screen.say(console, f"There is no best trial, because no trial has a score: {why}.")
        _explain_silence(console, site)
        return
    console.print()
    params = ", ".join(
        f"{name} = {value:.6g}" if isinstance(value, float) else f"{name} = {value!r}"
        for name, value in best.params.items()
    )
    complete, pruned, failed = (len(site.trials(state)) for state in _FINISHED)
    counts = {"complete": complete, "pruned": pruned, "failed": failed}
    rows = {
        "best": f"{best.value:.6g} in trial {best.number}, from {_words(record.read_origin(best))}",
        "with": params,
        "trials": ", ".join(f"{n} {word}" for word, n in counts.items() if n),
        "messages": f"{_traffic(site)}, in this run",
    }
    screen.show(console, screen.pairs(rows), below=1)
    screen.show(console, _sources(site), below=1)
    _explain_silence(console, site)
    name = screen.printable(shlex.quote(site.name or ""))
    if site.name is not None:
        screen.say(console, f"fedbo ledger --agent {name} lists every message that this site sent.")


def _explain_silence(console: Console, site: Site) -> None:
    if site.silence:
        screen.say(console, f"No message was sent in this run: {site.silence}.", "yellow")


def _traffic(site: Site) -> str:
    peers = screen.count(site.peers, "peer")
    return f"{site.ledger.sent} sent, {site.received} received from {peers}"


def _sources(site: Site) -> Table:
    scores: dict[str, list[float]] = {}
    for trial in site.trials(TrialState.COMPLETE):
        origin = record.read_origin(trial)
        source: str = "told" if origin is None else origin.source
        assert trial.value is not None
        scores.setdefault(source, []).append(trial.value)
    best = min if site.study.direction.name == "MINIMIZE" else max
    grid = screen.grid("source of the query")
    grid.add_column("trials", justify="right")
    grid.add_column("best score", justify="right")
    for source, words in _SOURCES.items():
        if given := scores.get(source):
            grid.add_row(words, f"{len(given)}", f"{best(given):.6g}")
    return grid


def _line(step: Step) -> Text:
    line = Text(f"trial {step.number:>4}  ")
    if step.state == TrialState.FAIL:
        return line.append("failed", style="red").append(f"  {screen.printable(step.why)}")
    if step.state == TrialState.PRUNED:
        line.append("pruned", style="yellow")
    else:
        line.append(f"{step.score:<10.6g}", style="bold green" if step.best else "")
    return line.append(f"  {'best so far' if step.best else '':<11}  {_words(step.origin)}")


def _words(origin: Origin | None) -> str:
    if origin is None:
        return _SOURCES["told"]
    if origin.source == "peer" and origin.peer is not None:
        return f"peer {screen.printable(origin.peer)}"
    ranked = sorted(origin.credit.items(), key=lambda pair: -pair[1])[:_PEERS]
    shares = ", ".join(f"{screen.printable(name)} {share:.0%}" for name, share in ranked)
    return _SOURCES[origin.source] + (f" ({shares})" if shares else "")
