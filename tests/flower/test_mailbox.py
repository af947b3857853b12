"""The server's mailbox: who may say what, and who hears whom."""

import time

import msgspec
import pytest
from contracts.releases import contribution

import fedbo
from fedbo.federation.plan import Plan
from fedbo.flower.mailbox import Mailbox
from fedbo.message import MessageRefused, Release, read
from fedbo.testing.keys import keys_of
from fedbo.trust import KeyPair, KeyRefused

FEDERATION = fedbo.Federation({"x": fedbo.Float(0, 1), "y": fedbo.Float(0, 1)})


def agent(i, federation=FEDERATION, trials=6, part="", **options):
    name = f"site-{i:02}{part}"
    site = fedbo.Agent(federation, name=name, seed=i, **{"keys": keys_of(name), **options})
    for _ in range(trials):
        trial = site.ask()
        site.tell(trial, -abs(trial.params["x"] - (i % 10) / 10) - abs(trial.params["y"] - 0.5))
    return site


@pytest.fixture(scope="module")
def messages():
    return [agent(i).message() for i in range(12)]


def senders(mailbox):
    return [read(data).sender for data in mailbox.handed_out()]


def test_a_server_that_starts_again_has_the_messages(tmp_path, messages):
    for node, message in enumerate(messages):
        assert Mailbox(tmp_path, FEDERATION).put(node, message.encode()) == message.sender
    again = Mailbox(tmp_path, FEDERATION)
    assert again.handed_out() == [message.encode() for message in messages]


def test_the_latest_message_of_a_sender_is_kept(tmp_path):
    site = agent(1)
    old = site.message().encode()
    site.tell({"x": 0.1, "y": 0.5}, 1.0)
    new = site.message().encode()
    mailbox = Mailbox(tmp_path, FEDERATION)
    mailbox.put(1, new)
    with pytest.raises(MessageRefused, match="a later one of this sender was heard here before"):
        mailbox.put(1, old)
    mailbox.put(1, new)
    assert mailbox.handed_out() == [new]


def test_of_many_senders_the_latest_are_handed_out(tmp_path, messages, monkeypatch):
    monkeypatch.setattr("fedbo.flower.mailbox.MOST_PEERS", 4)
    mailbox = Mailbox(tmp_path, FEDERATION)
    for node in (*range(7), 3):
        mailbox.put(node, messages[node].encode())
    assert senders(mailbox) == ["site-03", "site-04", "site-05", "site-06"]


def test_hostile_messages_are_refused_and_change_nothing(tmp_path, messages):
    mailbox = Mailbox(tmp_path, FEDERATION)
    mailbox.put(1, messages[1].encode(), present=[1, 2])
    other = fedbo.Federation({"x": fedbo.Float(0, 2), "y": fedbo.Float(0, 1)})
    cases = {
        "bytes are no message": (2, b"junk"),
        "foreign space": (2, agent(2, other).message().encode()),
        "which is the name of node 1": (2, messages[1].encode()),
        "now calls itself 'site-02'": (1, messages[2].encode()),
        "is not signed": (2, agent(2, keys=None).message().encode()),
        "bytes, expected at most": (2, bytes(10**6)),
    }
    for why, (node, data) in cases.items():
        with pytest.raises(MessageRefused, match=why):
            mailbox.put(node, data, present=[1, 2])
    assert senders(mailbox) == ["site-01"]


def test_a_name_within_the_name_of_another_node_displaces_nothing(tmp_path):
    private = fedbo.Federation(FEDERATION.space, privacy=PLAN)
    mailbox = Mailbox(tmp_path, private)
    for node in range(5):
        mailbox.put(node, agent(node, private).message().encode())
    inside = agent(1, private, trials=20, part="/x", keys=KeyPair.generate()).message().encode()
    with pytest.raises(MessageRefused, match="'site-01/x', a name that belongs to another key"):
        mailbox.put(9, inside, present=[9])
    assert mailbox.release().trials == 5 * 6


def test_a_node_that_claims_ever_more_trials_neither_hastens_nor_blocks_releases(tmp_path):
    private = fedbo.Federation(FEDERATION.space, privacy=msgspec.structs.replace(PLAN, releases=3))
    mailbox, made = Mailbox(tmp_path, private), []
    for sequence in range(1, 12):
        claim = contribution(private, "liar", sequence=sequence, t_n=2**31 - 12 + sequence)
        mailbox.put(9, claim.encode())
        for node in range(4) if sequence in (5, 10) else ():
            honest = contribution(private, f"site-{node}", sequence=sequence)
            mailbox.put(node, honest.encode())
        made += [(sequence, release.members) for release in [mailbox.release()] if release]
    assert made == [(5, 5), (10, 5)]


def test_a_site_that_lost_its_folder_takes_a_new_name(tmp_path, messages):
    Mailbox(tmp_path, FEDERATION).put(1, messages[1].encode())
    keys = KeyPair.generate()
    for _ in range(2):
        mailbox = Mailbox(tmp_path, FEDERATION)
        with pytest.raises(MessageRefused, match=r"has lost its folder, .* takes a new name"):
            mailbox.put(1, agent(1, trials=2, keys=keys).message().encode())
        assert mailbox.handed_out() == [messages[1].encode()]
    young = agent(13, trials=2, keys=keys).message().encode()
    mailbox.put(1, young)
    assert mailbox.handed_out() == [messages[1].encode(), young]


def test_only_listed_keys_count(tmp_path):
    keys = KeyPair.generate()
    listed = fedbo.Federation(FEDERATION.space, members={"site-01": keys.public})
    mailbox = Mailbox(tmp_path, listed)
    with pytest.raises(MessageRefused, match="not signed"):
        mailbox.put(1, agent(1, listed, keys=None).message().encode())
    mailbox.put(1, agent(1, listed, keys=keys).message().encode())
    assert len(mailbox) == 1


PLAN = Plan(epsilon=5, delta=1e-3, releases=2, by="server", least_trials=4, least_members=5)


def test_contributions_stay_at_the_server_and_releases_keep_to_the_plan(tmp_path):
    private = fedbo.Federation(FEDERATION.space, privacy=PLAN)
    agents = [agent(i, private) for i in range(6)]
    mailbox = Mailbox(tmp_path, private)
    for node, site in enumerate(agents[:4]):
        mailbox.put(node, site.message().encode())
    assert mailbox.release() is None  # too few
    assert mailbox.handed_out() == []
    for node, site in enumerate(agents):
        mailbox.put(node, site.message().encode())
    assert mailbox.release().sequence == 1
    again = Mailbox(tmp_path, private)
    (heard,) = again.handed_out()
    assert isinstance(read(heard), Release)
    assert read(heard).sender == "server"

    def contribute(count):
        for node, site in enumerate(agents[:count]):
            site.tell({"x": 0.3, "y": 0.5}, -1.0)
            again.put(node, site.message().encode())

    assert again.release() is None  # there is nothing new
    contribute(4)
    assert again.release() is None  # from too few
    contribute(5)
    assert again.release().sequence == 2
    contribute(6)
    assert again.release() is None  # all planned ones were made
    (heard,) = again.handed_out()
    assert read(heard).sequence == 2
    newcomer = fedbo.Agent(private, name="new", seed=1)
    assert newcomer.receive(heard) == 1


def test_days_lie_between_the_start_and_releases(tmp_path, monkeypatch):
    plan = msgspec.structs.replace(PLAN, days=2.0)
    private = fedbo.Federation(FEDERATION.space, privacy=plan)
    mailbox = Mailbox(tmp_path, private)
    for node in range(5):
        mailbox.put(node, agent(node, private).message().encode())
    assert mailbox.release() is None
    now = time.time()
    monkeypatch.setattr("fedbo.flower.mailbox.time.time", lambda: now + 2.1 * 86400)
    assert Mailbox(tmp_path, private).release().sequence == 1


def test_a_plan_without_a_number_of_members_is_refused(tmp_path):
    plan = msgspec.structs.replace(PLAN, least_members=0)
    with pytest.raises(ValueError, match="least_members"):
        Mailbox(tmp_path, fedbo.Federation(FEDERATION.space, privacy=plan))


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
    assert again.handed_out() == []
    made = again.release()
    assert made.sequence == 1
    assert again.handed_out() == [made.encode()]
    assert again.release() is None


def test_listed_members_sign_releases_or_none_is_made(tmp_path):
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
    assert newcomer.receive(mailbox.handed_out()) == 1
