"""The server's mailbox: who may say what, and who hears whom."""

import numpy as np
import pytest

import fedbo
from fedbo.federation.plan import Plan
from fedbo.flower.mailbox import Mailbox
from fedbo.identity import KeyPair, KeyRefused
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
    heard = mailbox.messages_for([0, 99])
    assert heard[0] == heard[99] == [message.encode() for message in messages]


def test_a_server_that_starts_again_has_the_messages(tmp_path, messages):
    for node, message in enumerate(messages):
        Mailbox(tmp_path, FEDERATION).put(node, message.encode())
    again = Mailbox(tmp_path, FEDERATION)
    assert again.messages_for([0])[0] == [message.encode() for message in messages]


def test_the_latest_message_of_a_sender_is_kept(tmp_path):
    one = agent(1)
    old = one.message().encode()
    one.tell({"x": 0.1, "y": 0.5}, 1.0)
    new = one.message().encode()
    mailbox = Mailbox(tmp_path, FEDERATION)
    for data in (new, old, new):
        mailbox.put(1, data)
    assert mailbox.messages_for([2])[2] == [new]


def test_a_sample_changes_as_little_as_possible(tmp_path, messages):
    mailbox = Mailbox(tmp_path, FEDERATION, most=4)
    for node, message in enumerate(messages[:11]):
        mailbox.put(node, message.encode())
    first = mailbox.messages_for(range(11))
    assert mailbox.messages_for(range(11)) == first
    assert {len(heard) for heard in first.values()} == {4}
    assert len({tuple(heard) for heard in first.values()}) > 6
    assert all(messages[node].encode() not in heard for node, heard in first.items())
    mailbox.put(11, messages[11].encode())
    later = mailbox.messages_for(range(11))
    assert all(len({*later[node]} - {*first[node]}) <= 1 for node in range(11))


def test_the_most_alike_are_those_with_the_largest_correlation(tmp_path, messages):
    mailbox = Mailbox(tmp_path, FEDERATION, hear="alike", most=4)
    for node, message in enumerate(messages):
        mailbox.put(node, message.encode())
    grid = np.random.default_rng(0).random((4000, 2))
    values = FEDERATION.basis.coordinates(grid) @ np.array([m.nu for m in messages]).T
    correlation = np.corrcoef(values.T)
    heard = mailbox.messages_for([*range(12), 99])
    for node in range(12):
        expected = np.argsort(-correlation[node])[1:5]  # its own message is the first
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
        "it is signed, but the federation lists no members": (
            2,
            agent(2, keys=KeyPair.generate()).message().encode(),
        ),
        "bytes, expected up to": (2, bytes(10**6)),
        "of epoch 1": (2, agent(2, FEDERATION.next_epoch(length_scale=0.4)).message().encode()),
    }
    for why, (node, data) in cases.items():
        with pytest.raises(MessageRefused, match=why):
            mailbox.put(node, data, present=[1, 2])
    assert senders(mailbox.messages_for([2])[2]) == ["site-01"]


def test_a_node_that_came_back_under_another_number_has_its_name_again(tmp_path, messages):
    mailbox = Mailbox(tmp_path, FEDERATION)
    mailbox.put(1, messages[1].encode(), present=[1, 2])
    assert mailbox.put(7, messages[1].encode(), present=[2, 7]) == "site-01"


def test_a_site_that_lost_its_trials_starts_anew(tmp_path, messages, caplog):
    Mailbox(tmp_path, FEDERATION).put(1, messages[1].encode())
    young = agent(1, trials=2).message().encode()
    for _ in range(2):
        mailbox = Mailbox(tmp_path, FEDERATION)
        mailbox.put(1, young)
        assert mailbox.messages_for([2])[2] == [young]
    assert caplog.text.count("site-01 starts anew") == 1


def test_only_listed_keys_count(tmp_path):
    keys = KeyPair.generate()
    listed = fedbo.Federation(FEDERATION.space, members={"site-01": keys.public})
    mailbox = Mailbox(tmp_path, listed)
    with pytest.raises(MessageRefused, match="not signed"):
        mailbox.put(1, agent(1, listed).message().encode())
    mailbox.put(1, agent(1, listed, keys=keys).message().encode())
    assert len(mailbox) == 1


PLAN = Plan(epsilon=5, delta=1e-3, releases=2, by="server", least_trials=4, least_members=5)


def test_contributions_stay_at_the_server_and_releases_keep_to_the_plan(tmp_path):
    private = fedbo.Federation(FEDERATION.space, privacy=PLAN)
    agents = [agent(i, private) for i in range(6)]
    mailbox = Mailbox(tmp_path, private)
    for node, one in enumerate(agents[:4]):
        mailbox.put(node, one.message().encode())
    assert mailbox.release() is None  # too few
    assert mailbox.messages_for([0]) == {0: []}
    for node, one in enumerate(agents):
        mailbox.put(node, one.message().encode())
    assert mailbox.release().sequence == 1
    again = Mailbox(tmp_path, private)
    (heard,) = again.messages_for([0])[0]
    assert isinstance(read(heard), Release)
    assert read(heard).sender == "server"
    assert again.release() is None  # there is hardly anything new
    for node, one in enumerate(agents):
        for i in range(6):
            one.tell({"x": i / 6, "y": 0.5}, -i)
        again.put(node, one.message().encode())
    assert again.release().sequence == 2
    assert again.release() is None  # all planned ones were made
    (heard,) = again.messages_for([3])[3]
    assert read(heard).sequence == 2
    newcomer = fedbo.Agent(private, name="new", seed=1)
    assert newcomer.receive(heard) == 1


def test_a_release_that_was_recorded_and_not_published_is_published(tmp_path, monkeypatch):
    private = fedbo.Federation(FEDERATION.space, privacy=PLAN)
    mailbox = Mailbox(tmp_path, private)
    for node in range(5):
        mailbox.put(node, agent(node, private).message().encode())

    class PowerCut(BaseException):
        pass

    def cut(*args):
        raise PowerCut

    monkeypatch.setattr("fedbo.exchange.contributions._publish", cut)
    with pytest.raises(PowerCut):
        mailbox.release()
    monkeypatch.undo()
    again = Mailbox(tmp_path, private)
    assert again.messages_for([0]) == {0: []}
    made = again.release()
    assert made.sequence == 1
    assert again.messages_for([0]) == {0: [made.encode()]}
    assert again.release() is None


def test_listed_members_sign_releases_or_none_is_made(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDBO_STATE", str(tmp_path / "state"))
    keys, others = KeyPair.load(), [KeyPair.generate() for _ in range(5)]
    members = {f"site-{i:02}": others[i].public for i in range(5)}
    unknown = members | {"server": KeyPair.generate().public}
    with pytest.raises(KeyRefused, match="lists a key of 'server', and its private key is not"):
        Mailbox(tmp_path, fedbo.Federation(FEDERATION.space, privacy=PLAN, members=unknown))
    members |= {"server": keys.public}
    private = fedbo.Federation(FEDERATION.space, privacy=PLAN, members=members)
    mailbox = Mailbox(tmp_path, private)
    for node in range(5):
        mailbox.put(node, agent(node, private, keys=others[node]).message().encode())
    made = mailbox.release()
    assert made.signer == str(keys)
    newcomer = fedbo.Agent(private, name="site-00", keys=others[0])
    assert newcomer.receive(mailbox.messages_for([1])[1]) == 1


def test_wrong_arguments(tmp_path):
    with pytest.raises(ValueError, match="hear is 'some', expected one of uniform, alike"):
        Mailbox(tmp_path, FEDERATION, hear="some")
    with pytest.raises(ValueError, match="most is 0, expected 1 to 1,024 messages"):
        Mailbox(tmp_path, FEDERATION, most=0)
