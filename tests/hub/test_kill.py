"""A hub may be stopped or killed at any moment: what was acknowledged is there."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import signal
import threading
import time

import httpx2
import msgspec
import pytest
from contracts.hub import HubProcess
from hub.test_hub_server import answers, publication, settle
from hub.world import BINARY, HERE, Lung, World, private_federation
from sqlalchemy import select

from fedbo.cli.hub_release import release
from fedbo.exchange.hub.wire import News, Wanted
from fedbo.federation import Plan
from fedbo.hub.store import schema
from fedbo.message import Message

KILLS = int(os.environ.get("FEDBO_TEST_KILLS", "30"))
MEMBERS = 4


class Sites:
    """Members that publish all the time, and repeat what was not acknowledged."""

    def __init__(self, hub: HubProcess, tokens: list[str]) -> None:
        self.acknowledged = {f"m{number}": 0 for number in range(len(tokens))}
        self.faults: list[str] = []
        self._hub, self._is_over = hub, threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=pair)
            for pair in zip(self.acknowledged, tokens, strict=True)
        ]

    def __enter__(self) -> Sites:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _run(self, name: str, token: str) -> None:
        sequence = 1
        while not self._is_over.is_set():
            with contextlib.suppress(httpx2.HTTPError), self._hub.client(token) as client:
                while not self._is_over.is_set():
                    answer = client.put(HERE + "/messages", **publication(name, sequence))
                    if answer.status_code == 503:
                        break
                    if answer.json() != {"out": True}:
                        self.faults.append(answer.text)
                    self.acknowledged[name] = sequence
                    sequence += 1
            time.sleep(0.02)


def test_a_graceful_stop_under_load_loses_nothing(database_url: str) -> None:
    with HubProcess(database_url) as hub:
        _, tokens = settle(hub, MEMBERS)
        with Sites(hub, tokens) as sites:
            hub.wait_for(lambda: min(sites.acknowledged.values()))
            assert hub.stop() == 0
        _check(_stored(hub), sites.acknowledged)
        assert sites.faults == []
        events = [line["event"] for line in hub.events() if line["event"] != "request"]
        assert sorted(events) == ["started", "stopped"]
        assert not any(line.get("status") == 500 for line in hub.events())


@pytest.mark.slow
def test_nothing_acknowledged_is_missing_after_kills(database_url: str) -> None:
    rng = random.Random(0)
    with HubProcess(database_url) as hub:
        _, tokens = settle(hub, MEMBERS)
        with Sites(hub, tokens) as sites:
            for _ in range(KILLS):
                before = dict(sites.acknowledged)
                hub.wait_for(lambda before=before: sites.acknowledged != before)
                time.sleep(rng.uniform(0.0, 0.5))
                known = dict(sites.acknowledged)
                hub.kill()
                _check(_stored(hub), known)
                hub.start()
                hub.wait_for(lambda: answers(hub))
                _check(_fetched(hub, tokens[0]), known)
        assert sites.faults == []
        assert min(sites.acknowledged.values()) > 0
        query = select(schema.audit.c.subject, schema.audit.c.detail)
        with hub.engine.connect() as connection:
            rows = connection.execute(query.where(schema.audit.c.action == "published")).all()
        logged = {(row.subject, msgspec.json.decode(row.detail)["sequence"]) for row in rows}
        total = sum(sites.acknowledged.values())
        print(f"{hub.engine.dialect.name}: {KILLS} kills, {total:,} acknowledged")
        for name, latest in sites.acknowledged.items():
            assert {(name, sequence) for sequence in range(1, latest + 1)} <= logged


def _stored(hub: HubProcess) -> dict[str, int]:
    query = select(schema.message.c.sender, schema.message.c.sequence)
    hub.engine.dispose()
    with hub.engine.connect() as connection:
        return {sender: sequence for sender, sequence in connection.execute(query)}


def _fetched(hub: HubProcess, token: str) -> dict[str, int]:
    body = msgspec.msgpack.encode(Wanted())
    with hub.client(token) as client:
        answer = client.post(HERE + "/fetch", content=body, headers=BINARY)
    news = msgspec.msgpack.decode(answer.raise_for_status().content, type=News)
    messages = [Message.decode(each.content) for each in news.handed]
    return {message.sender: message.sequence for message in messages}


def _check(found: dict[str, int], known: dict[str, int]) -> None:
    missing = {name for name, sequence in known.items() if found.get(name, 0) < sequence}
    assert not missing, (found, known)


@pytest.mark.slow
def test_no_release_is_heard_that_is_not_recorded(database_url: str) -> None:
    rng, codes = random.Random(0), list[int | None]()
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(
        ["fedbo.cli.hub_release", "fedbo.hub.store", "dp_accounting.pld", "psycopg"]
    )
    given = {"name": "lung", "yes": True, "db": database_url}

    def run(patience: float) -> float:
        """Make a release in a new process, and kill it after so many seconds."""
        process, began = processes.Process(target=release, kwargs=given), time.monotonic()
        process.start()
        process.join(patience)
        process.kill()
        process.join()
        codes.append(process.exitcode)
        return time.monotonic() - began

    with World(database_url) as world:
        plan = Plan(epsilon=2.0, delta=1e-3, releases=1000)
        lung = Lung(world, private_federation(plan), "a", "b", "c")
        lung.contribute("a", "b")
        run(60.0)
        usual = run(60.0)
        for _ in range(KILLS):
            before = len(lung.recorded())
            run(rng.uniform(0.0, 1.3 * usual))
            rows = lung.recorded()
            assert [row.sequence for row in rows] == [*range(1, len(rows) + 1)]
            assert before <= len(rows) <= before + 1
            assert [each.sequence for each in lung.fetch("c")] == [len(rows)]
        assert len(world.audit("released")) == len(rows)
        run(60.0)  # nothing is locked
    assert codes[-1] == 0 and {*codes} == {0, -signal.SIGKILL}
