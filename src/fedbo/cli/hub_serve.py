"""``fedbo hub serve``: run a hub."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fedbo.cli import checks, screen
from fedbo.cli.hub_database import Config, Db

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from fedbo.hub.settings import Settings


def serve(
    db: Db = None,
    host: Annotated[str | None, typer.Option(help="The address to listen at: 127.0.0.1.")] = None,
    port: Annotated[int | None, typer.Option(help="The port: 8765; 0: any free one.")] = None,
    workers: Annotated[int | None, typer.Option(help="How many processes serve: 1.")] = None,
    tls_certificate: Annotated[
        str | None, typer.Option(metavar="FILE", help="The certificate and its issuers, PEM.")
    ] = None,
    tls_key: Annotated[
        str | None, typer.Option(metavar="FILE", help="The certificate's private key, PEM.")
    ] = None,
    trusted_proxies: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESSES",
            help="Proxies whose X-Forwarded-For and X-Forwarded-Proto are believed: addresses or "
            "networks, with commas between them.",
        ),
    ] = None,
    plain: Annotated[
        bool | None, typer.Option("--plain", help="Serve other machines without TLS.")
    ] = None,
    public_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Where members reach the hub, if elsewhere.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="Requests a second for one member: 50; 0: no limit.")
    ] = None,
    failures: Annotated[
        int | None, typer.Option(help="Failed log-ins a minute from one address: 10; 0: no limit.")
    ] = None,
    log: Annotated[
        Literal["json", "plain"] | None, typer.Option(help="Lines of the log: json, or plain text.")
    ] = None,
    session_hours: Annotated[
        float | None, typer.Option(help="How long a log-in at the page lasts: 12.")
    ] = None,
    release_key: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The private key that signs private releases."),
    ] = None,
    config: Config = None,
) -> None:
    """Serve federations to their members, and a page to look at.

    Every option can also be given as a variable (FEDBO_HUB_PORT) or in the file (port). An option
    counts more than a variable, and a variable more than the file.
    """
    checks.require("hub", {"fastapi": "fastapi", "uvicorn": "uvicorn", "sqlalchemy": "SQLAlchemy"})
    flags = {name: value for name, value in locals().items() if name != "config"}
    from fedbo.hub import settings as given
    from fedbo.hub.database import HubError
    from fedbo.hub.serve import Stage

    try:
        settings = given.load(flags, config, os.environ)
        stage = Stage(settings)
    except (ValueError, HubError) as error:
        checks.end(str(error))

    def announce() -> None:
        typer.echo(f"fedbo hub: {stage.address}")
        for line in _welcome(settings, stage.engine, stage.address):
            typer.echo(screen.lines(line))

    try:
        code = stage.run(announce)
    except HubError as error:
        checks.end(str(error))
    raise typer.Exit(code)


def _welcome(settings: Settings, engine: Engine, address: str) -> list[str]:
    """Return what to tell who started a hub: where it is, and what to do next."""
    from fedbo.hub import admin

    page = settings.public_url or address
    with engine.connect() as connection:
        federations = [one.name for one in admin.federations(connection)]
        has_operator = bool(admin.operators(connection))
    db = f" --db {settings.shown_db()}" if settings.db != type(settings)().db else ""
    said = [f"The page is at {page}/; the database is {_database(settings)}."]
    if not has_operator:
        said.append(f"There is no operator yet: fedbo hub operator add NAME{db} prints a token.")
    if not federations:
        said.append(
            "There is no federation yet: fedbo hub create NAME --federation federation.toml"
            f"{db} creates one and prints an invitation."
        )
    return said


def _database(settings: Settings) -> str:
    """Return where the database is: the full path of a file, or an address without a password."""
    from sqlalchemy.engine import make_url

    url = make_url(settings.db)
    file = url.database or ""
    if url.get_backend_name() == "sqlite" and file and not file.startswith((":", "file:")):
        return os.path.abspath(file)
    return settings.shown_db()
