"""The settings of a hub: from flags, the environment and a TOML file, in this order of precedence.

A setting ``public_url`` is the flag ``--public-url``, the variable ``FEDBO_HUB_PUBLIC_URL`` and the
key ``public_url`` of the file.
"""

from __future__ import annotations

import ipaddress
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from fedbo import files
from fedbo.outside import shortened, without_password

PREFIX = "FEDBO_HUB_"
CONFIG = PREFIX + "CONFIG"  # names the TOML file
INVITED_DAYS = 14.0  # for which an invitation is valid unless somebody says otherwise
_LARGEST = 2**16  # bytes of the file


def _of(description: str, **limits: Any) -> Any:
    return msgspec.Meta(description=description, **limits)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a hub.

    Raises:
        ValueError: If a value is not possible; the text names it.
    """

    db: Annotated[str, _of("The address of the database.")] = "sqlite:///fedbo.db"
    host: Annotated[str, _of("The address to listen at.", min_length=1)] = "127.0.0.1"
    port: Annotated[int, _of("The port; 0: any free one.", ge=0, le=65535)] = 8765
    tls_certificate: Annotated[
        str, _of("A file with the certificate and those of its issuers, in PEM.")
    ] = ""
    tls_key: Annotated[str, _of("The file of its private key.")] = ""
    trusted_proxies: Annotated[
        str,
        _of(
            "Addresses or networks of proxies, with commas between them. Only what they say in "
            "X-Forwarded-For and X-Forwarded-Proto is believed. *: of anyone."
        ),
    ] = ""
    plain: Annotated[
        bool, _of("Whether to serve without TLS at an address that other machines can reach.")
    ] = False
    public_url: Annotated[
        str, _of("Where members reach the hub, if a proxy is in front of it.")
    ] = ""
    rate: Annotated[
        float,
        _of(
            "How many requests a second one member may make, with bursts of 4 times as many; "
            "0: no limit.",
            ge=0.0,
            le=1e6,
        ),
    ] = 50.0
    metrics: Annotated[
        str,
        _of(
            "HOST:PORT at which Prometheus reads numbers of the hub, without a token; without one, "
            "nowhere."
        ),
    ] = ""
    release_key: Annotated[
        str,
        _of(
            "The file of the private key that signs private releases, as fedbo identity writes it; "
            "by default, the key of the user who runs the hub."
        ),
    ] = ""

    def __post_init__(self) -> None:
        if self.public_url and not self.public_url.startswith(("https://", "http://")):
            raise ValueError("expected an address such as https://hub.example.org")
        for proxy in split(self.trusted_proxies):
            if proxy != "*":
                ipaddress.ip_network(proxy)

        if self.metrics and not re.fullmatch(r".+:[0-9]{1,5}", self.metrics):
            raise ValueError("expected an address of this machine and a port: 127.0.0.1:9464")

    def __repr__(self) -> str:
        return f"Settings(db={without_password(self.db)!r}, host={self.host!r}, port={self.port})"


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

    >>> load({"port": 80}, None, {"FEDBO_HUB_PORT": "90", "FEDBO_HUB_RATE": "2"})
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
        values |= _checked(_read(file), lambda name: f"{name} in {file}", strict=True)
    values |= _checked(variables, lambda name: PREFIX + name.upper(), strict=False)
    values |= _checked(given, lambda name: f"--{name.replace('_', '-')}", strict=False)
    return msgspec.convert(values, Settings, strict=False)


def split(addresses: str) -> list[str]:
    """Return the addresses in a text with commas between them."""
    return [address.strip() for address in addresses.split(",") if address.strip()]


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(files.read(file, _LARGEST).decode())
    except OSError as error:
        raise ValueError(
            f"the settings {file} cannot be read ({error.strerror}): give a TOML file"
        ) from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the settings {file} are not a TOML file: {error}") from None


def _checked(
    values: Mapping[str, Any], spelt: Callable[[str], str], *, strict: bool
) -> Mapping[str, Any]:
    """Return settings that can be; in a strict place a number must not be given as text."""
    for name, value in values.items():
        if name not in Settings.__struct_fields__:
            known = ", ".join(Settings.__struct_fields__)
            raise ValueError(f"{spelt(name)} is not a setting of the hub, expected one of {known}")
        try:
            msgspec.convert({name: value}, Settings, strict=strict)
        except ValueError as error:
            shown = "something else" if name == "db" else shortened(repr(value))
            reason = str(error).partition(" - at ")[0]
            raise ValueError(f"{spelt(name)} is {shown}: {reason}") from None
    return values
