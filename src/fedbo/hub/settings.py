"""The settings of a hub: from flags, the environment and a TOML file, in this order of precedence.

A setting ``session_hours`` is the flag ``--session-hours``, the variable
``FEDBO_HUB_SESSION_HOURS`` and the key ``session_hours`` of the file.
"""

from __future__ import annotations

import difflib
import inspect
import ipaddress
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, get_type_hints

import msgspec

from fedbo import files
from fedbo.outside import shortened, without_password

PREFIX = "FEDBO_HUB_"
CONFIG = PREFIX + "CONFIG"  # names the TOML file
_LARGEST = 2**16  # bytes of the file
_URL = re.compile(r"https?://(?:[\w.-]+|\[[0-9a-fA-F:]+\])(?::[1-9]\d*)?(?:/[^?#\s]*)?")
_RANGES = {
    "port": (0, 65535),
    "workers": (1, 64),
    "rate": (0.0, 1e6),
    "failures": (0, 10**6),
    "session_hours": (0.01, 24.0 * 365),
}


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a hub.

    Args:
        db: The address of the database.
        host: The address to listen at.
        port: The port; 0: any free one.
        workers: How many processes serve.
        tls_certificate: A file with the certificate and those of its issuers, in PEM.
        tls_key: The file of its private key.
        trusted_proxies: Addresses or networks of proxies, with commas between them. Only what they
            say in ``X-Forwarded-For`` and ``X-Forwarded-Proto`` is believed. ``*``: of anyone.
        plain: Whether to serve without TLS at an address that other machines can reach.
        public_url: Where members reach the hub, if a proxy is in front of it.
        rate: How many requests a second one member may make in each worker, with bursts of 4 times
            as many; 0: no limit.
        failures: How many failed log-ins a minute one address may make in each worker; 0: no limit.
        log: Whether each line of the log is a JSON object, or text for people.
        session_hours: How long a log-in at the page lasts.
        release_key: The file of the private key that signs private releases, as ``fedbo identity``
            writes it; without one, they are not signed.

    Raises:
        ValueError: If a value is not possible; the text names it.
    """

    db: str = "sqlite:///fedbo.db"
    host: str = "127.0.0.1"
    port: int = 8765
    workers: int = 1
    tls_certificate: str = ""
    tls_key: str = ""
    trusted_proxies: str = ""
    plain: bool = False
    public_url: str = ""
    rate: float = 50.0
    failures: int = 10
    log: Literal["json", "plain"] = "json"
    session_hours: float = 12.0
    release_key: str = ""

    def __post_init__(self) -> None:
        for name, (low, high) in _RANGES.items():
            if not low <= (value := getattr(self, name)) <= high:
                raise ValueError(f"{name} is {value}, expected {low:g} to {high:g}")
        if not self.host.strip():
            raise ValueError("host is empty, expected an address such as 127.0.0.1")
        for proxy in split(self.trusted_proxies):
            _check_network(proxy)
        if self.public_url:
            _check_url(self.public_url)
        from sqlalchemy.engine import make_url  # slow to import
        from sqlalchemy.exc import ArgumentError

        try:
            make_url(self.db)
        except ArgumentError:
            raise ValueError(
                "db is not the address of a database, expected one such as sqlite:///fedbo.db or "
                "postgresql+psycopg://user@host/name"
            ) from None

    def __repr__(self) -> str:
        return f"Settings(db={without_password(self.db)!r}, host={self.host!r}, port={self.port})"

    def to_environ(self) -> dict[str, str]:
        """Return the variables that tell a worker process its settings.

        >>> Settings(port=0).to_environ()["FEDBO_HUB_PORT"]
        '0'
        """
        return {PREFIX + name.upper(): str(getattr(self, name)) for name in self.__struct_fields__}

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Settings:
        """Return the settings in the environment; what is missing has its default.

        Args:
            environ: Usually ``os.environ``.
        """
        return load({}, None, environ)


def load(
    flags: Mapping[str, object | None], file: Path | None, environ: Mapping[str, str]
) -> Settings:
    """Return the settings of a hub: flags count most, then the environment, then the file.

    Args:
        flags: The settings by name; None: it was not given.
        file: A TOML file; None: there is none.
        environ: Usually ``os.environ``. An empty variable counts as one that is not there.

    Raises:
        ValueError: If a name is not known, or a value is not possible; the text says where it is.

    >>> load({"port": 80}, None, {"FEDBO_HUB_PORT": "90", "FEDBO_HUB_WORKERS": "2"})
    Settings(db='sqlite:///fedbo.db', host='127.0.0.1', port=80)
    """
    variables = {
        name[len(PREFIX) :].lower(): value
        for name, value in environ.items()
        if name.startswith(PREFIX) and name != CONFIG and value
    }
    given = {name: value for name, value in flags.items() if value is not None}
    values: dict[str, Any] = {}
    if file is not None:
        values |= _converted(_read(file), str, f" in {file}", strict=True)
    values |= _converted(variables, lambda name: PREFIX + name.upper(), strict=False)
    values |= _converted(given, lambda name: f"--{name.replace('_', '-')}", strict=False)
    return Settings(**values)


def descriptions() -> dict[str, str]:
    """Return what each setting means, by name, for the help of the command line.

    >>> descriptions()["workers"]
    'How many processes serve.'
    """
    arguments = inspect.cleandoc(str(Settings.__doc__)).partition("Args:\n")[2]
    found = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", arguments, re.M)
    return {name: " ".join(text.split()) for name, text in found if name != "ValueError"}


def split(addresses: str) -> list[str]:
    """Return the addresses in a text with commas between them."""
    return [one.strip() for one in addresses.split(",") if one.strip()]


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(files.read(file, _LARGEST, empty=True).decode())
    except OSError as error:
        raise ValueError(
            f"the settings {file} cannot be read ({error.strerror}): give a TOML file"
        ) from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the settings {file} are not a TOML file: {error}") from None


def _converted(
    given: Mapping[str, Any], spelt: Callable[[str], str], place: str = "", *, strict: bool
) -> dict[str, Any]:
    """Return settings with the right types.

    Args:
        given: The settings by name.
        spelt: Returns how a name is written where they come from.
        place: Where that is, for errors.
        strict: Whether a number must not be given as text.
    """
    types, values = get_type_hints(Settings), {}
    for name, value in given.items():
        where = spelt(name) + place
        if name not in types:
            close = difflib.get_close_matches(name, types, n=1) or types
            known = ", ".join(map(spelt, close))
            raise ValueError(f"{where} is not a setting of the hub; did you mean {known}?")
        try:
            values[name] = msgspec.convert(value, types[name], strict=strict)
            Settings(**{name: values[name]})
        except msgspec.ValidationError as error:
            shown = "something else" if name == "db" else shortened(repr(value))
            raise ValueError(f"{where} is {shown}: {error}") from None
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
    return values


def _check_network(text: str) -> None:
    if text != "*":
        try:
            ipaddress.ip_network(text)
        except ValueError as error:
            raise ValueError(
                f"trusted_proxies has {shortened(text)!r}, expected addresses such as 10.0.0.7, "
                f"networks such as 10.0.0.0/24, or *: {error}"
            ) from None


def _check_url(text: str) -> None:
    if _URL.fullmatch(text) is None:
        raise ValueError(
            f"public_url is {shortened(text)!r}, expected an address such as "
            "https://hub.example.org"
        )
