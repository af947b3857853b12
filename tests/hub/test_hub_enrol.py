"""Becoming a member of a hub, and the way to it: TLS, private authorities and proxies."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest
from contracts.authority import Certified, Proxy, certify
from contracts.exchange import OTHERS, OURS, M, message, sequences, withdrawal
from contracts.hub import HubProcess, Office

from fedbo import Federation
from fedbo.errors import HubRefused
from fedbo.exchange import ExchangeError, exchange_at
from fedbo.exchange.hub.member import enrol
from fedbo.exchange.hub.memberships import Memberships
from fedbo.testing.keys import keys_of, new_keys
from fedbo.testing.parties import PLANE


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubProcess(f"sqlite:///{tmp_path_factory.mktemp('hub')}/hub.db") as running:
        yield running


@pytest.fixture
def office(hub: HubProcess) -> Office:
    return Office(hub.db)


@pytest.fixture
def liver(office: Office) -> str:
    """The name of a new federation."""
    name = f"liver-{secrets.token_hex(6)}"
    office.create(name, OURS)
    return name


def test_a_name_is_random_or_the_one_that_is_listed(hub: HubProcess, office: Office) -> None:
    keys = new_keys()
    name = f"listed-{secrets.token_hex(6)}"
    members = {"clinic": str(keys), "lab": str(new_keys())}
    office.create(name, Federation(PLANE, features=M, members=members))
    with pytest.raises(HubRefused) as caught:
        enrol(hub.address, office.invite(name), "clinic", keys=new_keys())
    assert caught.value.slug == "wrong-key"
    with pytest.raises(HubRefused):
        enrol(hub.address, office.invite(name), "stranger", keys=keys)
    assert enrol(hub.address, office.invite(name), None, keys=keys).member == "clinic"
    plain = f"plain-{secrets.token_hex(6)}"
    office.create(plain, OURS)
    assert enrol(hub.address, office.invite(plain), None, keys=keys).member.startswith("site-")


def test_an_invitation_that_is_not_valid_is_refused(
    hub: HubProcess, office: Office, liver: str
) -> None:
    invited = office.invite(liver)
    wrong, keys = invited._replace(secret="x" * 32), new_keys()
    with pytest.raises(HubRefused) as caught:
        enrol(hub.address, wrong, "clinic", keys=keys)
    assert caught.value.slug == "not-invited" and wrong.secret not in str(caught.value)
    with pytest.raises(ValueError, match="not an invitation: expected NAME") as malformed:
        enrol(hub.address, f"{invited.name}.{invited.secret}", "clinic", keys=keys)
    assert invited.secret not in str(malformed.value)
    other = invited._replace(fingerprint=OTHERS["seed"].fingerprint)
    with pytest.raises(ValueError, match="not the one that the invitation is for"):
        enrol(hub.address, other, "clinic", keys=keys)
    with pytest.raises(ValueError, match=f"is for the federation '{liver}'"):
        enrol(f"{hub.address}/lung", invited, "clinic", keys=keys)
    assert Memberships().all() == []


# Through TLS and proxies


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Certified:
    return certify(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def safe_hub(
    tmp_path_factory: pytest.TempPathFactory, certified: Certified
) -> Iterator[HubProcess]:
    db = f"sqlite:///{tmp_path_factory.mktemp('hub')}/hub.db"
    settings = {"tls_certificate": certified.certificate, "tls_key": certified.key}
    with HubProcess(db, **settings) as running:
        Office(db).create("liver", OURS)
        yield running


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proxies of the machine that runs the tests are none of theirs."""
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)


def test_a_private_authority_is_trusted_if_a_variable_names_it(
    safe_hub: HubProcess, certified: Certified, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert safe_hub.address.startswith("https://")
    invited = Office(safe_hub.db).invite("liver")
    with pytest.raises(ExchangeError, match=r"is not trusted .* set SSL_CERT_FILE to the file"):
        enrol(safe_hub.address, invited, "clinic", keys=new_keys())
    monkeypatch.setenv("SSL_CERT_FILE", str(certified.authority))
    name = f"clinic {secrets.token_hex(3)}"
    mine = enrol(safe_hub.address, invited, name, keys=keys_of(name))
    exchange = exchange_at(safe_hub.address)
    assert exchange.publish(message(sender=name)) is True
    assert name in sequences(exchange)
    assert exchange_at(mine.address).publish(withdrawal(message(sender=name))) is True
    assert name not in sequences(exchange)


@pytest.mark.parametrize("variable", ["https_proxy", "ALL_PROXY"])
def test_a_proxy_is_used_if_a_variable_names_it(
    safe_hub: HubProcess, certified: Certified, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certified.authority))
    invited = Office(safe_hub.db).invite("liver")
    name = f"clinic {secrets.token_hex(3)}"
    with Proxy() as proxy:
        monkeypatch.setenv(variable, proxy.address)
        mine = enrol(safe_hub.address, invited, name, keys=keys_of(name))
        exchange = exchange_at(safe_hub.address)
        assert exchange.publish(message(sender=name)) is True
        exchange.fetch(OURS)
        host = safe_hub.address.removeprefix("https://").encode()
        assert {*proxy.asked} == {b"CONNECT " + host + b" HTTP/1.1"}
        assert proxy.passed
        for secret in (mine.token, invited.secret, name):
            assert secret.encode() not in proxy.passed
        asked = len(proxy.asked)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        exchange_at(safe_hub.address).fetch(OURS)
        assert len(proxy.asked) == asked
