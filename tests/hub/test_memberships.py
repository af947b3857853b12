"""Where a member's tokens are kept."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from contracts.exchange import OURS, child, ended, together
from msgspec.structs import replace

from fedbo.exchange import ExchangeError
from fedbo.exchange.hub.memberships import HubUrl, Membership, Memberships
from fedbo.testing.keys import keys_of

HUB = "https://hub.example.org"
TEMPLATE = (
    '{{"memberships": [{{"address": "https://hub.example.org", "federation": "liver", '
    f'"member": "a", "fingerprint": "{OURS.fingerprint}", "key": "{keys_of("a")}", '
    '"token": "{token}"}}]}}'
)


def membership(member: str = "clinic", federation: str = "liver", letter: str = "a") -> Membership:
    return Membership(
        address=HUB,
        federation=federation,
        fingerprint=str(OURS.fingerprint),
        member=member,
        token="fedbo-m-" + letter * 43,
        key=str(keys_of(member)),
    )


@pytest.fixture
def book(state: Path, monkeypatch: pytest.MonkeyPatch) -> Memberships:
    monkeypatch.setenv("FEDBO_STATE", str(state / "new"))
    return Memberships()


def test_a_membership_is_remembered(book: Memberships) -> None:
    assert book.all() == []
    first, second = membership(), membership("lab", letter="b")
    book.add(first)
    book.add(second)
    assert Memberships().all() == [first, second]
    renewed = replace(first, token="fedbo-m-" + "c" * 43)
    book.add(renewed)
    assert book.all() == [renewed, second]
    book.remove(first)  # which has another token now
    assert book.all() == [renewed, second]
    book.remove(renewed)
    assert book.all() == [second]


def test_memberships_are_found_by_hub_federation_and_member(book: Memberships) -> None:
    clinic, lab, lung = membership(), membership("lab"), membership(federation="lung")
    for one in (clinic, lab, lung):
        book.add(one)
    assert book.at(HubUrl("https://elsewhere.example.org")) == []
    assert book.at(HubUrl(HUB)) == [clinic, lab, lung]
    assert book.at(HubUrl(HUB, "liver")) == [clinic, lab]
    assert book.at(HubUrl(HUB), "clinic") == [clinic, lung]


@pytest.mark.skipif(os.name != "posix", reason="there are no permissions as on POSIX")
def test_only_the_user_can_read_tokens(book: Memberships) -> None:
    book.add(membership())
    assert stat.S_IMODE(book.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(book.path.parent.stat().st_mode) == 0o700
    for mode in (0o640, 0o604, 0o660):
        book.path.chmod(mode)
        for use in (book.all, lambda: book.add(membership("x")), book.check_writable):
            with pytest.raises(ExchangeError, match=r"other users can read .* chmod 600"):
                use()
    book.path.chmod(0o600)
    assert book.all() == [membership()]


def test_a_token_is_not_shown() -> None:
    assert "aaa" not in repr(membership()) + str(membership())


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        "[" * 10**5,
        '{"memberships": "fedbo-m-secret"}',
        TEMPLATE.format(token="fedbo-m-secret"),
        TEMPLATE.format(token=r"fedbo-m-secret\r\nX: y" + "a" * 30),
        TEMPLATE.format(token="fedbo-m-" + "a" * 43).replace("liver", "../operator"),
    ],
)
def test_a_damaged_file_is_refused_and_kept(book: Memberships, content: str) -> None:
    book.add(membership())
    book.path.write_text(content)
    for use in (book.all, lambda: book.add(membership())):
        with pytest.raises(ExchangeError, match="the file is damaged; restore a copy") as caught:
            use()
        assert "secret" not in str(caught.value)
    assert book.path.read_text() == content


def test_a_folder_that_cannot_be_written_is_noticed_before_a_token_is_asked_for(
    plain_user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDBO_STATE", str(plain_user / "state"))
    plain_user.chmod(0o500)
    with pytest.raises(ExchangeError, match="Permission denied"):
        Memberships().check_writable()


def test_processes_do_not_lose_each_others_memberships(book: Memberships) -> None:
    program = (
        "from fedbo.exchange.hub.memberships import Memberships\n"
        "sys.path.insert(0, sys.argv[2])\n"
        "from test_memberships import membership\n"
        "book = Memberships()\n"
        "print('ready', flush=True)\n"
        "input()\n"
        "for i in range(10):\n"
        "    book.add(membership(f'{sys.argv[1]}-{i}'))\n"
        "    book.remove(membership(f'{sys.argv[1]}-{i - 1}'))\n"
    )
    here = Path(__file__).parent
    processes = [child(program, f"p{i}", here) for i in range(3)]
    together(processes)
    for process in processes:
        ended(process)
    assert {one.member for one in book.all()} == {"p0-9", "p1-9", "p2-9"}
