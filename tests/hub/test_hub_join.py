"""`fedbo join` at a hub, and `fedbo hub` for its members: as a person runs them."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from contracts.exchange import OTHERS, OURS, heard, message, sequences, unwarned
from contracts.hub import HubProcess, Office
from typer.testing import CliRunner, Result

from fedbo import Federation
from fedbo.cli import app as cli
from fedbo.exchange import ExchangeWarning, exchange_at
from fedbo.exchange.hub.memberships import Memberships
from fedbo.testing.keys import new_keys
from fedbo.testing.parties import PLANE
from fedbo.trust import KeyPair, Keyring

FILE = Path("federation.toml")


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubProcess(f"sqlite:///{tmp_path_factory.mktemp('hub')}/hub.db") as running:
        yield running


class Liver:
    """A new federation at the hub."""

    def __init__(self, hub: HubProcess) -> None:
        self.hub, self.office = hub.address, Office(hub.db)
        self.name = f"liver-{secrets.token_hex(6)}"
        self.office.create(self.name, OURS)
        self.place = f"{self.hub}/{self.name}"

    @property
    def invitation(self) -> str:
        return str(self.office.invite(self.name))


@pytest.fixture
def liver(hub: HubProcess) -> Liver:
    return Liver(hub)


@pytest.fixture(autouse=True)
def _a_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")


def invoke(*args: object, stdin: str = "") -> Result:
    return CliRunner().invoke(cli.app, [str(arg) for arg in args], input=stdin)


def said(result: Result) -> str:
    return " ".join((result.stdout + result.stderr).replace("│", " ").split())


def joined(liver: Liver, *args: object) -> str:
    result = invoke("join", liver.hub, "--invite", "-", *args, stdin=liver.invitation)
    assert result.exit_code == 0, result.output
    return said(result)


GOLDEN = (
    "You are now the member 'clinic' of {place}. The token is in {tokens}, which only this user "
    "can read. Your messages will be signed with the key {key}. The federation file was written to "
    "federation.toml. In a study, only the sampler changes: "
    "FederatedSampler('federation.toml', exchange='{place}')"
)


def test_an_invitation_makes_a_member_and_says_what_to_do_next(liver: Liver) -> None:
    text = joined(liver, "--name", "clinic")
    [mine] = Memberships().all()
    assert (mine.place, mine.member, mine.key) == (liver.place, "clinic", str(KeyPair.load()))
    assert Federation.load(FILE) == OURS
    assert text == GOLDEN.format(place=liver.place, tokens=Memberships().path, key=mine.key)


def test_an_invitation_may_come_from_standard_input_or_a_file(liver: Liver) -> None:
    result = invoke("join", liver.hub, "--invite", "-", stdin=f"{liver.invitation}\n")
    assert result.exit_code == 0, result.output
    [mine] = Memberships().all()
    assert mine.key == str(KeyPair.load()) and mine.member.startswith("site-")
    KeyPair.retire()
    Path("invitation.txt").write_text(f"{liver.invitation}\n")
    result = invoke("join", liver.hub, "--invite", "invitation.txt", "--name", "clinic")
    assert result.exit_code == 0, result.output
    Path("invitation.txt").write_bytes(b"\xff\xfe")
    for file in ("invitation.txt", "invitatoin.txt"):
        assert invoke("join", liver.hub, "--invite", file, "--name", "lab").exit_code == 1


def test_the_same_file_is_fine_and_another_is_not_overwritten(liver: Liver) -> None:
    OTHERS["seed"].save(FILE)
    result = invoke("join", liver.hub, "--invite", "-", stdin=liver.invitation)
    assert result.exit_code == 1
    assert "You have not joined, and the invitation is still valid" in said(result)
    assert f"fedbo join {liver.place} --invite - --federation NEW" in said(result)
    assert Memberships().all() == [] and Federation.load(FILE) == OTHERS["seed"]
    OURS.save(FILE)
    before = FILE.stat().st_mtime_ns
    joined(liver)
    assert FILE.stat().st_mtime_ns == before


def test_who_was_removed_joins_again_with_a_new_invitation(liver: Liver) -> None:
    joined(liver, "--name", "clinic")
    (before,) = Memberships().all()
    liver.office.remove(liver.name, "clinic")
    join = ("join", liver.hub, "--invite", "-", "--name", "clinic")
    result = invoke(*join, stdin=liver.invitation)
    assert result.exit_code == 1 and "run fedbo hub leave first" in said(result)
    assert invoke("hub", "leave", liver.hub).exit_code == 0
    assert "You are now the member 'clinic'" in joined(liver, "--name", "clinic")
    (after,) = Memberships().all()
    assert after.token != before.token


@pytest.mark.parametrize(
    "args",
    [["HUB", "--invite", "nonsense"], ["folder"], ["http://hub.example.org"], ["HUB"]],
)
def test_errors_come_first_and_change_nothing(liver: Liver, args: list[str]) -> None:
    result = invoke("join", *(liver.hub if arg == "HUB" else arg for arg in args))
    assert result.exit_code in (1, 2)
    assert isinstance(result.exception, SystemExit)
    assert not [*Path().iterdir()]


def test_a_name_that_is_taken_is_refused(
    liver: Liver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    joined(liver, "--name", "clinic")
    FILE.unlink()
    monkeypatch.setenv("FEDBO_STATE", str(tmp_path / "another"))
    result = invoke(
        "join", liver.hub, "--invite", "-", "--name", "clinic/b", stdin=liver.invitation
    )
    assert result.exit_code == 1 and "The name is taken" in said(result)
    assert not FILE.exists()


def test_the_federation_file_can_be_fetched_again(liver: Liver) -> None:
    joined(liver)
    FILE.unlink()
    result = invoke("join", liver.hub)
    assert result.exit_code == 0, result.output
    assert Federation.load(FILE) == OURS and "was written to federation.toml" in said(result)
    OTHERS["kind"].save(FILE)
    assert invoke("join", liver.hub).exit_code == 1
    assert Federation.load(FILE) == OTHERS["kind"]


def test_a_listed_key_does_not_change_silently(liver: Liver) -> None:
    """Otherwise a hub could drop a member in one list, and name another key in the next."""
    joined(liver, "--name", "a")
    kept, gone, other, new = str(KeyPair.load()), *(str(new_keys()) for _ in range(3))
    ours = {"a": kept, "clinic": gone}
    Federation(PLANE, features=5, seed=7, members=ours).save(FILE)
    for members in ({"a": kept}, {"a": kept, "clinic": other}, None):
        listed = Federation(PLANE, features=5, seed=7, members=members)
        liver.office.update(liver.name, listed)
        result = invoke("join", liver.place)
        assert result.exit_code == 1, result.output
        assert f"fedbo join {liver.place} --federation NEW" in said(result)
        assert Federation.load(FILE).members.keys() == ours.keys()
    longer = Federation(PLANE, features=5, seed=7, members=ours | {"new": new})
    liver.office.update(liver.name, longer)
    result = invoke("join", liver.place)
    assert result.exit_code == 0 and "lists new members: 'new'" in said(result)
    assert Federation.load(FILE).members == longer.members
    liver.office.update(liver.name, OURS)
    result = invoke("join", liver.place, "--federation", "NEW")
    assert result.exit_code == 0 and Federation.load("NEW").members == {}


def test_a_list_does_not_speak_for_a_member_who_is_known(liver: Liver) -> None:
    joined(liver, "--name", "a")
    known, other = new_keys(), new_keys()
    Keyring.user().judge(OURS, [message(sender="clinic", keys=known)])
    members = {"a": str(KeyPair.load()), "clinic": str(other)}
    listed = Federation(PLANE, features=5, seed=7, members=members)
    liver.office.update(liver.name, listed)
    for args in ((liver.place,), (liver.place, "--federation", "NEW")):
        result = invoke("join", *args)
        assert result.exit_code == 1 and f"fedbo identity trust clinic {other}" in said(result)
    assert Federation.load(FILE).members == {} and not Path("NEW").exists()
    assert invoke("identity", "trust", "clinic", other).exit_code == 0
    assert invoke("join", liver.place).exit_code == 0
    assert Federation.load(FILE).members == listed.members


@pytest.mark.parametrize("how", ["heard", "listed", "listed when joining"])
def test_a_swapped_key_is_noticed_in_every_folder(
    liver: Liver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """What this user knows does not depend on the federation file that lies in a folder."""
    known, other = new_keys(), new_keys()
    honest = {"a": str(KeyPair.load()), "clinic": str(known)}
    listed, swapped = (
        Federation(PLANE, features=5, seed=7, members=honest | {"clinic": str(key)})
        for key in (known, other)
    )
    if how == "listed when joining":
        liver.office.update(liver.name, listed)
    joined(liver, "--name", "a")
    if how == "listed":
        liver.office.update(liver.name, listed)
        assert invoke("join", liver.place).exit_code == 0
    elif how == "heard":
        liver.office.put(liver.name, message(sender="clinic", keys=known))
        assert sequences(exchange_at(liver.place)) == {"clinic": 1}
    liver.office.update(liver.name, swapped)
    (folder := tmp_path / "another").mkdir()
    monkeypatch.chdir(folder)
    before = Memberships().all()
    refresh = invoke("join", liver.place)
    KeyPair.retire()
    enrol = invoke(
        "join",
        liver.hub,
        "--invite",
        "-",
        "--name",
        "b",
        stdin=str(liver.office.invite(liver.name)),
    )
    for result in (refresh, enrol):
        assert result.exit_code == 1, result.output
        assert f"'clinic' (known here by {known})" in said(result)
        assert f"fedbo identity trust clinic {other}" in said(result)
    assert [*folder.iterdir()] == [] and Memberships().all() == before


def test_a_list_that_vanishes_does_not_open_its_names(liver: Liver) -> None:
    known, other = new_keys(), new_keys()
    members = {"a": str(KeyPair.load()), "clinic": str(known)}
    liver.office.update(liver.name, Federation(PLANE, features=5, seed=7, members=members))
    joined(liver, "--name", "a")
    liver.office.update(liver.name, OURS)
    assert invoke("join", liver.place, "--federation", "NEW").exit_code == 0
    assert (ours := Federation.load("NEW")).members == {}
    liver.office.put(liver.name, message(sender="clinic", sequence=9, keys=other))
    exchange = exchange_at(liver.place)
    with pytest.warns(ExchangeWarning, match="'clinic' is known here by"):
        assert heard(exchange, ours) == []
    sent = message(sender="clinic", keys=known)
    liver.office.put(liver.name, sent)
    assert unwarned(exchange, ours) == [sent]


# What members do


def test_memberships_are_listed_without_tokens(liver: Liver) -> None:
    text = said(invoke("hub", "memberships"))
    assert "You are not a member of any hub: fedbo join ADDRESS --invite FILE" in text
    joined(liver, "--name", "clinic")
    result = invoke("hub", "memberships")
    [mine] = Memberships().all()
    assert result.exit_code == 0
    assert all(part in said(result) for part in (mine.place, "clinic", mine.key, "hubs.json"))
    assert mine.token not in result.output


def test_a_token_is_rotated_and_not_shown(liver: Liver) -> None:
    joined(liver, "--name", "clinic")
    [before] = Memberships().all()
    result = invoke("hub", "rotate", liver.hub)
    [after] = Memberships().all()
    assert result.exit_code == 0 and "'clinic' has a new token" in said(result)
    assert before.token != after.token
    assert before.token not in result.output and after.token not in result.output
    sent = message(sender="clinic", keys=KeyPair.load())
    assert exchange_at(liver.hub).publish(sent) is True


def test_a_key_is_replaced(liver: Liver) -> None:
    joined(liver, "--name", "clinic")
    for _ in range(2):
        result = invoke("hub", "rekey", liver.hub)
        assert result.exit_code == 0, result.output
        assert f"signed with {KeyPair.load()}" in said(result)
        key = KeyPair.retire()
    assert invoke("hub", "rekey", liver.hub).exit_code == 0 and KeyPair.load() != key
    sent = message(sender="clinic", keys=KeyPair.load())
    assert exchange_at(liver.hub).publish(sent) is True


def test_whoever_leaves_has_left(liver: Liver) -> None:
    joined(liver, "--name", "clinic")
    exchange_at(liver.hub).publish(message(sender="clinic", keys=KeyPair.load()))
    before = Memberships().all()[0]
    result = invoke("hub", "leave", liver.hub)
    assert result.exit_code == 0 and f"You have left {liver.place}" in said(result)
    assert Memberships().all() == []
    Memberships().add(before)
    result = invoke("hub", "leave", liver.hub)
    assert result.exit_code == 0 and "did not know 'clinic' any more" in said(result)
    assert Memberships().all() == []
    result = invoke("hub", "leave", liver.hub)
    assert result.exit_code == 1 and "you are not a member at" in said(result)
    liver.office.enrol(liver.hub, liver.name, "watcher")
    assert sequences(exchange_at(liver.hub)) == {}


def test_of_several_memberships_one_is_named(liver: Liver) -> None:
    for name in ("clinic", "lab"):
        joined(liver, "--name", name)
        KeyPair.retire()
    result = invoke("hub", "leave", liver.place)
    assert result.exit_code == 1 and "2 memberships fit" in said(result)
    assert f"{liver.place} --name lab" in said(result)
    assert invoke("hub", "leave", liver.place, "--name", "lab").exit_code == 0
    assert [one.member for one in Memberships().all()] == ["clinic"]


def test_the_status_of_a_hub_is_shown(liver: Liver) -> None:
    joined(liver, "--name", "clinic")
    exchange_at(liver.hub).publish(message(sender="clinic/a", keys=KeyPair.load()))
    result = invoke("exchange", "status", liver.hub, "--federation", FILE)
    assert result.exit_code == 0, result.output
    assert f"Exchange {liver.hub}" in said(result)
    assert f"The federation '{liver.name}', where you are 'clinic'" in said(result)
    assert "clinic/a" in said(result) and "accepted" in said(result)
    Memberships().remove(Memberships().all()[0])
    result = invoke("exchange", "status", liver.hub)
    assert result.exit_code == 1 and "you are not a member" in said(result)
