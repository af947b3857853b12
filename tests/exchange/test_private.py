"""Exchanges in private federations: contributions in, releases out."""

from __future__ import annotations

from pathlib import Path

import pytest
from contracts.exchange import heard
from contracts.private_exchange import OURS, PLAN, PrivateExchangeContract
from contracts.releases import contribution, private, released
from msgspec.structs import replace

from fedbo.exchange import Exchange, FolderExchange, MemoryExchange
from fedbo.exchange.folder import file_name, name_of, seal
from fedbo.message import Fingerprint, Release
from fedbo.testing.keys import keys_of
from fedbo.trust import Keyring


class TestMemoryExchange(PrivateExchangeContract):
    knows_keys = False

    @pytest.fixture
    def exchange(self, tmp_path: Path) -> MemoryExchange:
        return MemoryExchange()


class TestFolderExchange(PrivateExchangeContract):
    @pytest.fixture
    def exchange(self, tmp_path: Path) -> FolderExchange:
        return FolderExchange(tmp_path / "exchange")

    def put(self, exchange: Exchange, content: Release) -> None:
        home = Path(exchange.address) / str(Fingerprint(content.fingerprint))
        home.mkdir(parents=True, exist_ok=True)
        (home / name_of(content)).write_bytes(seal(content))


# A folder


@pytest.fixture
def folder(tmp_path: Path) -> FolderExchange:
    return FolderExchange(tmp_path / "exchange", Keyring())


def test_a_release_has_a_file_of_its_own(folder: FolderExchange) -> None:
    folder.publish(contribution(OURS, "hub"))
    folder.publish(released(OURS))
    names = {path.name for path in folder.folder.rglob("*.fedbo")}
    key = keys_of("hub").public
    assert names == {file_name("hub", key), file_name("hub", key, is_release=True)}


@pytest.mark.parametrize("members", [300, 10**6])
def test_the_largest_release_is_read(folder: FolderExchange, members: int) -> None:
    """64 cells, second moments of all 16 coordinates, and every number as long as it can be."""
    square = private({"x": OURS.space.parameters["x"], "y": OURS.space.parameters["x"]}, PLAN)
    one = released(square, (None,) * 300)
    unsigned = replace(
        one,
        members=members,
        trials=2**31 - 1,
        votes=(-(2**62),) * len(one.votes),
        sums=(2**62,) * len(one.sums),
    )
    huge = keys_of("hub").sign(unsigned)
    assert (len(one.votes), len(one.sums)) == (64, 152)
    assert len(seal(huge)) < square.most_bytes
    folder.publish(huge)
    assert heard(folder, square) == [huge]
