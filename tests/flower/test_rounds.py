"""Rounds with nodes that are late, die, join, or answer with nonsense."""

import logging
import time

import pytest
from flower.loopback import Loopback, partition

import fedbo
from fedbo.federation.plan import Plan
from fedbo.flower import Rounds, client_app, local_votes
from fedbo.flower.client import node_name
from fedbo.flower.folders import site_folder

FEDERATION = fedbo.Federation({"x": fedbo.Float(0, 1)})
NEVER = float("inf")


def objective(context):
    best = context.node_config.get("partition-id", 0) / 10
    return lambda params: -abs(params["x"] - best)


def fleet(folder, nodes=3, federation=FEDERATION, config=partition, **options):
    app = client_app(federation, objective, seed=0, **options)
    return Loopback(app, nodes, folder, config)


def run(grid, federation=FEDERATION, **config):
    config = {"rounds": 3, "trials": 2, "timeout": 0.6, **config}
    return Rounds(federation=federation).run(grid, grid.context(**config))


def trials(grid, node, federation=FEDERATION):
    folder = site_folder(federation, f"site-{node}", grid.context(node))
    return fedbo.Agent.load(folder / "agent.fedbo").trials


def test_a_node_that_died_is_waited_for_once(tmp_path, caplog):
    grid = fleet(tmp_path)
    grid.delay[1] = NEVER
    begin = time.monotonic()
    with caplog.at_level(logging.INFO, "flwr"):
        mailbox = run(grid, rounds=5, timeout=2.0)
    assert time.monotonic() - begin < 2 * 2.0 + 5
    assert len(mailbox) == 2
    assert grid.rounds == 5 * [[0, 1, 2]]  # it is still asked
    assert caplog.text.count("no answer in 2 s from nodes 1") == 1


def test_an_answer_that_is_late_counts_when_it_comes(tmp_path):
    grid = fleet(tmp_path)
    grid.delay[2] = 5  # looks, so that its first answer comes in a later round
    mailbox = run(grid, rounds=4, timeout=0.3)
    assert len(mailbox) == 3
    assert [len(trials(grid, node)) for node in range(3)] == [8, 8, 8]


def test_a_node_that_was_killed_and_came_back_is_waited_for_again(tmp_path, caplog):
    grid = fleet(tmp_path)
    grid.delay[1] = NEVER
    asked = grid.push_messages

    def push(messages):
        grid.delay[1] = NEVER if not grid.rounds else 0 if len(grid.rounds) == 1 else 2
        return asked(messages)

    grid.push_messages = push
    mailbox = run(grid, timeout=2.0)
    assert len(mailbox) == 3
    assert caplog.text.count("no answer") == 1
    assert len(trials(grid, 1)) == 4
    (latest,) = [m for m in map(fedbo.Message.decode, mailbox.heard_by([0])[0]) if m.t_n == 4]
    assert latest.sender == "site-1"  # its last answer came after those of the others


def test_a_node_that_joins_later_hears_of_the_others_at_once(tmp_path):
    grid = fleet(tmp_path)
    grid.arrives[2] = 3
    assert len(run(grid)) == 3
    assert grid.rounds == [[0, 1], [0, 1], [0, 1, 2]]
    assert [len(trials(grid, node)) for node in range(3)] == [6, 6, 2]
    folder = site_folder(FEDERATION, "site-2", grid.context(2))
    assert fedbo.Agent.load(folder / "agent.fedbo").inbox.senders == ["site-0", "site-1"]


def test_a_second_run_goes_on_where_the_first_one_ended(tmp_path):
    for expected in (6, 12):
        grid = fleet(tmp_path)
        run(grid)
        assert [len(trials(grid, node)) for node in range(3)] == 3 * [expected]
    one_go = fleet(tmp_path / "other")
    run(one_go, rounds=6)
    for node in range(3):
        assert [t.params for t in trials(grid, node)] == [t.params for t in trials(one_go, node)]


def test_a_node_that_fails_does_not_stop_the_others(tmp_path, caplog):
    def broken(context):
        if context.node_config["partition-id"] == 1:
            raise FileNotFoundError("no data at this site")
        return objective(context)

    grid = Loopback(client_app(FEDERATION, broken), 3, tmp_path, partition)
    assert len(run(grid)) == 2
    assert "node 1 failed with code 2: FileNotFoundError('no data at this site')" in caplog.text


def test_if_all_nodes_fail_so_does_the_run(tmp_path):
    def broken(context):
        raise FileNotFoundError("no data")

    grid = Loopback(client_app(FEDERATION, broken), 2, tmp_path, partition)
    with pytest.raises(RuntimeError, match=r"no node answered in 3 rounds.*no data"):
        run(grid)


def test_a_node_without_a_name_or_with_a_relative_folder_is_told_what_to_do(tmp_path, caplog):
    grid = fleet(tmp_path, config=lambda node: {} if node else {"name": "a", "folder": "here"})
    with pytest.raises(RuntimeError, match="no node answered"):
        run(grid, rounds=1)
    assert "--node-config" in caplog.text
    assert "folder in the node config is 'here', expected an absolute path" in caplog.text
    assert node_name({"name": "clinic", "partition-id": 1}) == "clinic"


def test_too_few_nodes(tmp_path):
    grid = fleet(tmp_path)
    with pytest.raises(RuntimeError, match=r"3 nodes are there after 0.6 s, expected 4.*'nodes'"):
        run(grid, nodes=4)


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"rounds": 0}, "rounds is 0, expected an int of 1 or more"),
        ({"trials": 1.5}, "trials is 1.5, expected an int of 1 or more"),
        ({"nodes": True}, "nodes is True, expected an int of 1 or more"),
        ({"timeout": -1}, "timeout is -1, expected a number of seconds above 0"),
    ],
)
def test_a_wrong_run_config(config, why, tmp_path):
    with pytest.raises(ValueError, match=why):
        run(fleet(tmp_path), **config)


def test_nodes_that_claim_one_name(tmp_path, caplog):
    grid = fleet(
        tmp_path, config=lambda node: {"name": "twin", "folder": str(tmp_path / f"{node}")}
    )
    assert len(run(grid)) == 1
    assert "which is the name of node" in caplog.text


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


def test_with_local_votes_only_randomised_votes_leave(tmp_path):
    private = fedbo.Federation({"x": fedbo.Float(0, 1)}, privacy=PLAN)
    grid = fleet(tmp_path, 4, private, mods=[local_votes(4.0)])
    mailbox = run(grid, private)
    assert len(mailbox) == 4
    for node in range(4):
        folder = site_folder(private, f"site-{node}", grid.context(node))
        sent = fedbo.Agent.load(folder / "agent.fedbo").message()
        assert sent.local_epsilon == 4.0
        assert not sent.y.any()


def test_local_votes_stop_anything_else(tmp_path, caplog):
    grid = fleet(tmp_path, 2, mods=[local_votes(4.0)])  # a federation without a plan
    with pytest.raises(RuntimeError, match=r"no node answered.*local_epsilon is 4.0, but"):
        run(grid, rounds=1)
    with pytest.raises(ValueError, match="epsilon is 0, expected a number above 0"):
        local_votes(0)


def test_the_mod_looks_at_what_leaves(tmp_path):
    from flwr.app import Message

    from fedbo.flower import wire

    grid, said = fleet(tmp_path), fedbo.Agent(FEDERATION, name="a", seed=0)
    said.tell({"x": 0.5}, 1.0)
    asked = wire.Instruction(round=1, trials=1, heard=[], patience=1.0)
    message = Message(wire.packed(asked), dst_node_id=0, message_type="train")
    message.metadata.__dict__["_message_id"] = "1"

    def leaky(message, context):
        answer = wire.Answer(message=said.message().encode())
        return Message(wire.packed(answer), reply_to=message)

    with pytest.raises(RuntimeError, match="nothing was sent: the message has local ε = None"):
        local_votes(1.0)(message, grid.context(), leaky)
