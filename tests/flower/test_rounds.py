"""Rounds with nodes that are late, die, join, or answer with nonsense."""

import logging
import time

import pytest
from flower.loopback import NEVER, Loopback, partition
from flwr.app import Message

import fedbo
from fedbo.federation.plan import Plan
from fedbo.flower import Rounds, client_app
from fedbo.flower.folders import site_folder

FEDERATION = fedbo.Federation({"x": fedbo.Float(0, 1)})


def objective(context):
    best = context.node_config.get("partition-id", 0) / 10
    return lambda params: -abs(params["x"] - best)


def fleet(folder, nodes=3, federation=FEDERATION, config=partition):
    app = client_app(federation, objective, seed=0)
    return Loopback(app, nodes, folder, config)


def run(grid, federation=FEDERATION, **config):
    config = {"rounds": 3, "trials": 2, "timeout": 0.6, **config}
    return Rounds(federation=federation).run(grid, grid.context(**config))


def trials(grid, node, federation=FEDERATION):
    folder = site_folder(federation, f"site-{node}", grid.context(node))
    return fedbo.Agent.load(folder / "agent.fedbo").trials


def never(number):
    return NEVER


def test_a_node_that_died_is_waited_for_once(tmp_path, caplog):
    grid = fleet(tmp_path)
    grid.answers[1] = never
    begin = time.monotonic()
    with caplog.at_level(logging.INFO, "flwr"):
        mailbox = run(grid, rounds=5, timeout=4.0)
    assert time.monotonic() - begin < 4.0 + 4.0 + 3.0  # waited for once, not five times
    assert len(mailbox) == 2
    assert grid.rounds == 2 * [[0, 1, 2]] + 3 * [[0, 2]]  # it was asked once more
    assert caplog.text.count("no answer in 4 s from node 1") == 1


def test_an_answer_that_is_late_counts_when_it_comes(tmp_path):
    grid = fleet(tmp_path)
    grid.answers[2] = lambda number: number + 2
    mailbox = run(grid, rounds=5, timeout=0.5)
    assert len(mailbox) == 3
    assert grid.rounds[:3] == [[0, 1, 2], [0, 1, 2], [0, 1]]  # a backlog of two, and no more
    assert [len(trials(grid, node)) for node in range(2)] == [10, 10]


def test_if_all_nodes_are_late_rounds_wait_for_them(tmp_path, caplog):
    grid = fleet(tmp_path, 2)
    grid.answers = {0: never, 1: never}
    begin = time.monotonic()
    with pytest.raises(RuntimeError, match=r"no node answered in 4 rounds of up to 0.5 s"):
        run(grid, rounds=4, timeout=0.5)
    assert time.monotonic() - begin > 4 * 0.5
    assert [len(nodes) for nodes in grid.rounds[:3]] == [2, 2, 0]


def test_a_node_that_was_killed_and_came_back_is_waited_for_again(tmp_path, caplog):
    grid = fleet(tmp_path)
    grid.answers[1] = lambda number: NEVER if number == 1 else number
    mailbox = run(grid, timeout=1.0)
    assert len(mailbox) == 3
    assert caplog.text.count("no answer") == 1
    assert len(trials(grid, 1)) == 4
    assert grid.rounds == 3 * [[0, 1, 2]]


def test_nonsense_is_refused_in_a_short_line(tmp_path, caplog):
    from flwr.app import ConfigRecord, RecordDict
    from flwr.clientapp import ClientApp

    good, bad = client_app(FEDERATION, objective), ClientApp()
    nonsense = iter([{"x" * 10**6: b""}, {"message": 3}, {"message": b"\x1b[2J"}])

    @bad.train()
    def shout(message, context):
        if context.node_config["partition-id"]:
            return good(message, context)
        fields = next(nonsense)
        name = "fedbo" if "message" in fields else next(iter(fields))
        return Message(RecordDict({name: ConfigRecord(fields)}), reply_to=message)

    grid = Loopback(bad, 2, tmp_path, partition)
    assert len(run(grid)) == 1
    assert caplog.text.count("the answer of node 0 is refused") == 3
    assert max(map(len, caplog.text.splitlines())) < 1000


def test_a_node_that_joins_later_hears_of_the_others_at_once(tmp_path):
    grid = fleet(tmp_path)
    grid.arrives[2] = 3
    assert len(run(grid)) == 3
    assert grid.rounds == [[0, 1], [0, 1], [0, 1, 2]]
    assert [len(trials(grid, node)) for node in range(3)] == [6, 6, 2]
    folder = site_folder(FEDERATION, "site-2", grid.context(2))
    assert fedbo.Agent.load(folder / "agent.fedbo").inbox.senders == ["site-0", "site-1"]


def test_a_node_that_fails_does_not_stop_the_others(tmp_path, caplog):
    def broken(context):
        if context.node_config["partition-id"] == 1:
            raise FileNotFoundError("no data at this site")
        return objective(context)

    grid = Loopback(client_app(FEDERATION, broken), 3, tmp_path, partition)
    assert len(run(grid)) == 2
    assert "node 1 failed: NothingSent(\"the objective of 'site-1' raised FileNotFound" in (
        caplog.text
    )
    assert "no data at this site" in caplog.text  # in the log of the node, which is the same here
    with pytest.raises(RuntimeError, match=r"no node answered in 3 rounds.*FileNotFoundError") as e:
        run(Loopback(client_app(FEDERATION, broken), 2, tmp_path / "other", lambda _: partition(1)))
    assert "no data" not in str(e.value)


PLAN = Plan(epsilon=8, delta=1e-3, by="server", least_trials=2, least_members=3)


def test_private_releases_and_nothing_else_are_heard(tmp_path, caplog):
    private = fedbo.Federation({"x": fedbo.Float(0, 1)}, privacy=PLAN)
    grid = fleet(tmp_path, 4, private)
    with caplog.at_level(logging.INFO, "flwr"):
        run(grid, private)
    assert caplog.text.count("private release 1 of 4 members") == 1
    folder = site_folder(private, "site-3", grid.context(3))
    agent = fedbo.Agent.load(folder / "agent.fedbo")
    assert len(agent.trials) == 6
    assert {name.rpartition("/")[0] for name in agent.inbox.senders} == {"server"}
