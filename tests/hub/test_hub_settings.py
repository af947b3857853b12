"""The settings of a hub, wherever they come from."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from fedbo.cli.hub_serve import serve
from fedbo.hub.settings import Settings, load


def test_flags_count_more_than_variables_and_these_more_than_the_file(tmp_path: Path) -> None:
    file = tmp_path / "hub.toml"
    file.write_text('port = 1\nrate = 2\nhost = "::1"\nplain = true\n')
    environ = {"FEDBO_HUB_PORT": "2", "FEDBO_HUB_RATE": "3", "FEDBO_HUB_TLS_KEY": ""}
    found = load({"port": 3, "rate": None}, file, environ)
    assert (found.port, found.rate, found.host) == (3, 3.0, "::1")
    assert (found.tls_key, found.plain) == ("", True)


def test_every_setting_is_an_option_of_the_command() -> None:
    options = inspect.signature(serve).parameters
    assert [*options][:-1] == [*Settings.__struct_fields__]


@pytest.mark.parametrize(
    ("flags", "environ", "file", "expected"),
    [
        ({"prot": 1}, {}, "", "--prot is not a setting of the hub"),
        ({}, {"FEDBO_HUB_WORKERS": "2"}, "", "FEDBO_HUB_WORKERS is not a setting"),
        ({}, {}, "tls_cert = 'x'", "tls_cert in"),
        ({}, {"FEDBO_HUB_PORT": "many"}, "", "FEDBO_HUB_PORT is 'many'"),
        ({}, {}, "port = '80'", "hub.toml is '80'"),
        ({}, {}, "plain = 'no'", "hub.toml is 'no'"),
        ({"port": 70000}, {}, "", "--port is 70000"),
        ({"metrics": "9464"}, {}, "", "127.0.0.1:9464"),
        ({"rate": float("nan")}, {}, "", "--rate is nan"),
        ({"host": ""}, {}, "", "--host is ''"),
        ({"trusted_proxies": "10.0.0.1, example.org"}, {}, "", "'example.org'"),
        ({"public_url": "hub.example.org"}, {}, "", "https://hub.example.org"),
        ({}, {}, "port = ", "not a TOML file"),
    ],
)
def test_what_cannot_be_is_named_with_its_place(
    flags: dict[str, object],
    environ: dict[str, str],
    file: str,
    expected: str,
    tmp_path: Path,
) -> None:
    path = tmp_path / "hub.toml"
    path.write_text(file)
    with pytest.raises(ValueError) as caught:
        load(flags, path, environ)
    assert expected in str(caught.value)


def test_a_password_is_never_shown() -> None:
    url = "postgresql+psycopg://hub:s3cret@db/fedbo?sslpassword=hidden"
    settings = Settings(db=url)
    for text in (repr(settings), str(settings)):
        assert "db/fedbo" in text
        assert "s3cret" not in text and "hidden" not in text
