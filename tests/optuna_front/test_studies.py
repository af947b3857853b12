"""Studies that are found by the address of their storage."""

from __future__ import annotations

import pytest

from fedbo.optuna import studies
from fedbo.optuna.studies import StorageRefused


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://me:hunter2@server/trials",
        "postgresql://me:hunter2@server:port/trials",
        "postgresql://me:hunter2/trials",
        "postgresql://me:hun@ter2@server/trials",
        "postgresql://me:hun://ter2@server/trials",
        "postgresql://server/trials?user=me&password=hunter2",
        "mssql+pyodbc://?odbc_connect=SERVER%3Dx%3BPWD%3Dhunter2",
        "postgresql://server/trials?token=hunter2",
        "postgresql://me%3Ahunter2@server/trials",
        "sqlite:///site.db?key=hunter2",
        "postgresql:///me:hunter2@server/trials",
        "postgresql//me:hunter2@server/trials",
        "postgresql:me:hunter2@server/trials",
        "postgres:/me:hunter2@server/trials",
        "nosuch://me:hunter2@server/trials",
        "me:hunter2@server",
    ],
)
def test_no_password_is_ever_printed(address: str) -> None:
    assert "***" in studies.shown(address)
    with pytest.raises(StorageRefused) as refused:
        studies.existing(address, "study")
    for text in (studies.shown(address), str(refused.value)):
        assert not any(secret in text for secret in ("hunter2", "hun", "ter2")), text


@pytest.mark.parametrize(
    "address",
    [
        "sqlite:///site.db",
        "sqlite:////home/a:b@c/site.db",
        "postgresql://server:5432/trials",
        "postgresql://me@server/trials",
        "site.db",
    ],
)
def test_an_address_without_a_password_is_printed_as_it_is(address: str) -> None:
    assert studies.shown(address) == address
