"""The server's mailbox: who may say what, and who hears whom."""

import numpy as np
import pytest

import fedbo
from fedbo.federation.plan import Plan
from fedbo.flower.mailbox import Mailbox
from fedbo.identity import KeyPair
from fedbo.message import MessageRefused, Release, read

FEDERATION = fedbo.Federation({"x": fedbo.Float(0, 1), "y": fedbo.Float(0, 1)})


def agent(i, federation=FEDERATION, trials=6, **options):
    one = fedbo.Agent(federation, name=f"site-{i:02}", seed=i, **options)
    for _ in range(trials):
        trial = one.ask()
        one.tell(trial, -abs(trial.params["x"] - (i % 10) / 10) - abs(trial.params["y"] - 0.5))
    return one


@pytest.fixture(scope="module")
def messages():
    return [agent(i).message() for i in range(12)]


def senders(heard):
    return [read(data).sender for data in heard]


def test_everybody_hears_all_if_there_are_few(tmp_path, messages):
    mailbox = Mailbox(tmp_path, FEDERATION, most=12)
    for node, message in enumerate(messages):
        assert mailbox.put(node, message.encode()) == message.sender
    heard = mailbox.heard_by([0, 99])
    assert heard[0] == heard[99] == [message.encode() for message in messages]


def test_a_server_that_starts_again_has_the_messages(tmp_path, messages):
    for node, message in enumerate(messages):
        Mailbox(tmp_path, FEDERATION).put(node, message.encode())
    again = Mailbox(tmp_path, FEDERATION)
    assert again.heard_by([0])[0] == [message.encode() for message in messages]


def test_the_latest_message_of_a_sender_is_kept(tmp_path):
    one = agent(1)
    old = one.message().encode()
    one.tell({"x": 0.1, "y": 0.5}, 1.0)
    new = one.message().encode()
    mailbox = Mailbox(tmp_path, FEDERATION)
    for data in (new, old, new):
        mailbox.put(1, data)
    assert mailbox.heard_by([2])[2] == [new]


def test_a_sample_stays_the_same_for_a_node(tmp_path, messages):
    mailbox = Mailbox(tmp_path, FEDERATION, most=4)
    for node, message in enumerate(messages):
        mailbox.put(node, message.encode())
    first, again = mailbox.heard_by(range(12)), mailbox.heard_by(range(12))
    assert first == again
    assert {len(heard) for heard in first.values()} == {4}
    assert len({tuple(heard) for heard in first.values()}) > 6


def test_the_most_alike_are_those_with_the_largest_correlation(tmp_path, messages):
    mailbox = Mailbox(tmp_path, FEDERATION, hear="alike", most=4)
    for node, message in enumerate(messages):
        mailbox.put(node, message.encode())
    grid = np.random.default_rng(0).random((4000, 2))
    values = FEDERATION.basis.coordinates(grid) @ np.array([m.nu for m in messages]).T
    correlation = np.corrcoef(values.T)
    heard = mailbox.heard_by([*range(12), 99])
    for node in range(12):
        expected = np.argsort(-correlation[node])[:5]  # its own message is the first
        assert senders(heard[node]) == [messages[i].sender for i in sorted(expected)]
    assert len(heard[99]) == 4  # it has no message yet, so it hears any


def test_hostile_messages_are_refused_and_change_nothing(tmp_path, messages):
    mailbox = Mailbox(tmp_path, FEDERATION)
    mailbox.put(1, messages[1].encode(), present=[1, 2])
    other = fedbo.Federation({"x": fedbo.Float(0, 2), "y": fedbo.Float(0, 1)})
    cases = {
        "are not a message": (2, b"junk"),
        "foreign space": (2, agent(2, other).message().encode()),
        "which is the name of node 1": (2, messages[1].encode()),
        "now calls itself 'site-02'": (1, messages[2].encode()),
        "of epoch 1": (2, agent(2, FEDERATION.next_epoch(length_scale=0.4)).message().encode()),
    }
    for why, (node, data) in cases.items():
        with pytest.raises(MessageRefused, match=why):
            mailbox.put(node, data, present=[1, 2])
    assert senders(mailbox.heard_by([2])[2]) == ["site-01"]


def test_a_node_that_came_back_under_another_number_has_its_name_again(tmp_path, messages):
    mailbox = Mailbox(tmp_path, FEDERATION)
    mailbox.put(1, messages[1].encode(), present=[1, 2])
    assert mailbox.put(7, messages[1].encode(), present=[2, 7]) == "site-01"


def test_only_listed_keys_count(tmp_path):
    keys = KeyPair.generate()
    listed = fedbo.Federation(FEDERATION.space, members={"site-01": keys.public})
    mailbox = Mailbox(tmp_path, listed)
    with pytest.raises(MessageRefused, match="not signed"):
        mailbox.put(1, agent(1, listed).message().encode())
    mailbox.put(1, agent(1, listed, keys=keys).message().encode())
    assert len(mailbox) == 1


def test_contributions_stay_at_the_server_and_releases_keep_to_the_plan(tmp_path):
    plan = Plan(epsilon=5, delta=1e-3, releases=2, by="server", least_trials=4, least_members=5)
    private = fedbo.Federation(FEDERATION.space, privacy=plan)
    given = [agent(i, private).message().encode() for i in range(6)]
    mailbox = Mailbox(tmp_path, private)
    for node, data in enumerate(given[:4]):
        mailbox.put(node, data)
    assert mailbox.release() is None  # too few
    assert mailbox.heard_by([0]) == {0: []}
    for node, data in enumerate(given):
        mailbox.put(node, data)
    assert mailbox.release().sequence == 1
    again = Mailbox(tmp_path, private)
    (heard,) = again.heard_by([0])[0]
    assert isinstance(read(heard), Release)
    assert read(heard).sender == "server"
    assert again.release().sequence == 2
    assert again.release() is None  # all planned ones were made
    (heard,) = again.heard_by([3])[3]
    assert read(heard).sequence == 2
    newcomer = fedbo.Agent(private, name="new", seed=1)
    assert newcomer.receive(heard) == 1


def test_wrong_arguments(tmp_path):
    with pytest.raises(ValueError, match="hear is 'some', expected one of uniform, alike"):
        Mailbox(tmp_path, FEDERATION, hear="some")
    with pytest.raises(ValueError, match="most is 0, expected a number of messages"):
        Mailbox(tmp_path, FEDERATION, most=0)
