"""A site: its trials outlive everything that can happen to its process."""

import logging
import subprocess
import sys
import time

import pytest

import fedbo
from fedbo.flower.site import Site, SiteBusy, TrialsFailed, listen
from fedbo.testing.keys import keys_of
from fedbo.trust import KeyPair, KeyRefused

FEDERATION = fedbo.Federation({"x": fedbo.Float(0, 1)})


def score(params):
    return -abs(params["x"] - 0.3)


def make(folder, name="site-a", **options):
    return Site(folder / name, name, FEDERATION, **{"seed": 0, **options})


def peer_message(name, federation=FEDERATION, best=0.7, **options):
    peer = fedbo.Agent(federation, name=name, seed=1, **{"keys": keys_of(name), **options})
    for _ in range(6):
        trial = peer.ask()
        peer.tell(trial, -abs(trial.params["x"] - best))
    return peer.message().encode()


def params(site):
    return [trial.params for trial in site.agent().trials]


def test_rounds_continue_where_the_last_one_ended(tmp_path):
    site = make(tmp_path)
    for n in (3, 5):
        assert make(tmp_path).work([], n - len(params(site)), score)
        assert len(params(site)) == n
    one_go = make(tmp_path, "site-b")
    one_go.work([], 5, score)
    assert params(one_go) == params(site)


def begin(folder, n, pause):
    """Start a process that runs n trials, each of which takes some seconds."""
    code = f"""
import time
from pathlib import Path
import fedbo
from fedbo.flower import Site
def score(params):
    time.sleep({pause})
    return -abs(params["x"] - 0.3)
federation = fedbo.Federation({{"x": fedbo.Float(0, 1)}})
Site(Path({str(folder)!r}) / "site-a", "site-a", federation, seed=0).work([], {n}, score)
"""
    return subprocess.Popen([sys.executable, "-c", code])


@pytest.mark.slow
def test_the_trial_of_a_site_that_is_killed_has_failed_and_no_other_is_lost(tmp_path):
    make(tmp_path).work([], 2, score)
    before = params(make(tmp_path))
    process = begin(tmp_path, 2, 600)
    path, deadline = make(tmp_path).path, time.monotonic() + 60
    while len(fedbo.Agent.load(path).trials) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.kill()
    process.wait()
    make(tmp_path).work([], 2, score)
    trials = make(tmp_path).agent().trials
    states = [trial.state for trial in trials]
    assert states == ["complete", "complete", "failed", "complete", "complete"]
    assert [trial.params for trial in trials[:2]] == before


@pytest.mark.slow
def test_two_processes_take_turns(tmp_path):
    both = [begin(tmp_path, 5, 0.2) for _ in range(2)]
    assert [process.wait(120) for process in both] == [0, 0]
    assert [trial.state for trial in make(tmp_path).agent().trials] == 10 * ["complete"]


def test_one_that_waits_too_long_says_so(tmp_path):
    site = make(tmp_path)

    def nested(params):
        with pytest.raises(SiteBusy, match=r"worked with the files of 'site-a' for more"):
            make(tmp_path).work([], 1, score, patience=0)
        return score(params)

    site.work([], 1, nested)


def test_a_trial_that_raises_or_has_no_finite_score_has_failed(tmp_path, caplog):
    values = [1.0, float("nan"), "0.5", True, 10**400, ZeroDivisionError("no data here"), None, 0.5]
    results = iter(values)

    def moody(params):
        value = next(results)
        if isinstance(value, Exception):
            raise value
        return value

    assert make(tmp_path).work([], len(values), moody)
    states = [trial.state for trial in make(tmp_path).agent().trials]
    assert states == ["complete", *6 * ["failed"], "complete"]
    assert "no data here" in caplog.text


def test_if_all_trials_fail_the_server_hears_of_it(tmp_path):
    def broken(params):
        raise OSError(f"the disk is full at {params}")

    with pytest.raises(TrialsFailed, match=r"all 2 trials of 'site-a' failed \(OSError\)") as error:
        make(tmp_path).work([], 2, broken)
    assert "disk" not in str(error.value)  # the text is sent to the server
    assert [trial.state for trial in make(tmp_path).agent().trials] == ["failed", "failed"]
    assert make(tmp_path).work([], 1, lambda params: None) == b""  # nothing to tell yet


def test_one_bad_message_does_not_silence_the_others(tmp_path, caplog):
    other = fedbo.Federation({"x": fedbo.Float(0, 2)})
    bad = [b"junk", peer_message("d", other), peer_message("e", keys=None)]
    heard = [peer_message("b"), *bad, peer_message("c")]
    site = make(tmp_path)
    with caplog.at_level(logging.WARNING, "flwr"):
        site.work(heard, 1, score)
    assert site.agent().inbox.senders == ["b", "c"]
    assert caplog.text.count("site-a ignores a message") == 3


def test_what_is_no_longer_handed_out_is_forgotten():
    agent = fedbo.Agent(FEDERATION, name="a", seed=0)
    for heard in (["b", "c"], ["c"], []):
        listen(agent, [peer_message(name) for name in heard])
        assert agent.inbox.senders == heard


def test_what_left_is_in_the_ledger_of_the_site(tmp_path):
    site = make(tmp_path)
    message = site.work([], 2, score)
    (entry,) = site.agent().ledger.read()
    assert entry.message().encode() == message


def test_another_federation_or_name_is_refused(tmp_path):
    make(tmp_path).work([], 1, score)
    wider = fedbo.Federation({"x": fedbo.Float(0, 2)})
    with pytest.raises(fedbo.FederationMismatch, match="high is 1"):
        Site(tmp_path / "site-a", "site-a", wider).work([], 1, score)
    with pytest.raises(ValueError, match="holds the agent 'site-a', but this site is called 'b'"):
        Site(tmp_path / "site-a", "b", FEDERATION).work([], 1, score)


def test_listed_members_sign(tmp_path):
    keys = KeyPair.load()
    listed = fedbo.Federation({"x": fedbo.Float(0, 1)}, members={"site-a": keys.public})
    message = Site(tmp_path / "a", "site-a", listed).work([], 1, score)
    assert fedbo.Message.decode(message).signer == str(keys)
    with pytest.raises(KeyRefused, match=r"'b' is not among the members.*site-a"):
        Site(tmp_path / "b", "b", listed).work([], 1, score)
