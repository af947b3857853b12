"""``fedbo identity``: this user's key, and the keys of peers that are trusted here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedbo.cli import checks, screen
from fedbo.federation.federation import Federation
from fedbo.message.signed import member, parse_key
from fedbo.trust import KeyPair, Keyring, own_keys

app = typer.Typer(no_args_is_help=True, help="Show this user's key, and say whom to trust.")


@app.command()
def show() -> None:
    """Show this user's key, and the keys of peers that are known here.

    A user without a key gets one. The private key never leaves its file.
    """
    own, keyring, mine = KeyPair.load(), Keyring.user(), own_keys()
    rows = {"key": str(own), "private key": f"{own.path}, which only this user can read"}
    if others := sorted(mine - {str(own)}):
        rows["other keys"] = f"{', '.join(others)}: imported, or replaced by a new one"
    screen.facts(rows)
    screen.say(
        "New studies of this user sign their messages with this key; a study keeps the key that it "
        "began with. To list this site in a federation file, send the key to whoever keeps that "
        "file, for its section [members]:"
    )
    screen.copied(f'NAME = "{own}"')
    known = [
        (name, key, (place[:8] or "all") + ", this user" * (key in mine))
        for place, names in keyring.by_federation().items()
        for name, key in sorted(names.items())
    ]
    if known:
        screen.say("Known keys", "bold")
        screen.table(("name", "key", "federation"), known)
    else:
        screen.say("No key of a peer is known here yet. The first key seen for a name is kept.")
    if revoked := keyring.revoked():
        screen.say("\nRevoked keys\n  " + "\n  ".join(revoked))


@app.command()
def trust(
    name: Annotated[str, typer.Argument(help="The name of a peer.")],
    key: Annotated[str, typer.Argument(help="Its public key, as fedbo identity show prints it.")],
    federation: Annotated[
        Path | None, typer.Option(help="Only in the federation of this file.")
    ] = None,
) -> None:
    """Accept messages with this key under this name, in place of any other key.

    Ask the peer for its key first, through another channel than the exchange, such as the
    telephone.
    """
    public = parse_key(key)
    agreed = None if federation is None else Federation.load(federation)
    keyring = Keyring.user()
    before = keyring.known(agreed).get(member(name))
    if before is not None and before != key and before in own_keys():
        checks.end(
            f"{member(name)!r} is a name of this user, with the key {before}, and another site "
            "uses it too. One of the two should take another name."
        )
    keyring.trust(name, public, agreed)
    instead = f", no longer with {before}" if before not in (None, key) else ""
    where = "in every federation" if agreed is None else f"in {federation}"
    screen.say(f"Messages of {member(name)!r} count {where} if signed with {key}{instead}.")
    if agreed is not None and agreed.members and member(name) in keyring.disputed(agreed):
        screen.say(
            f"But {federation} lists another key: nothing counts under this name until you change "
            "the key there. Then give every site the new file.",
            "yellow",
        )


@app.command()
def revoke(
    key_or_name: Annotated[str, typer.Argument(help="A public key, or the name of a peer.")],
    own: Annotated[
        bool, typer.Option("--own", help="Revoke this user's own key, and create a new one.")
    ] = False,
) -> None:
    """Refuse a key from now on, under every name."""
    keyring, keys = Keyring.user(), {key_or_name}
    if not key_or_name.startswith("ed25519:"):
        name, places = member(key_or_name), keyring.by_federation().values()
        keys = {names[name] for names in places if name in names}
        if not keys:
            known = ", ".join(sorted(keyring.known())) or "none"
            checks.end(f"No key of {key_or_name!r} is known here; known names: {known}.")
    mine = keys & own_keys()
    if mine and not own:
        checks.end(
            f"{', '.join(sorted(mine))} is this user's own key. To revoke it and to create a new "
            "one, add --own. Peers then refuse this user until they trust the new key."
        )
    for key in sorted(keys):
        keyring.revoke(parse_key(key))
        screen.say(f"{key} is revoked: nothing that it signed is accepted here any more.")
        if key in mine and key == str(KeyPair.load()):
            screen.say(
                f"That was this user's own key. The new one is {KeyPair.retire()}. Peers that know "
                "the old one refuse the new one until they run fedbo identity trust NAME KEY, or "
                "get a federation file that lists it. This user's studies sign with the new one "
                "from their next message on.",
                "yellow",
            )
    screen.say(
        "This counts for this user only. Tell the other sites to revoke the key too, or take it "
        "out of the federation file if that lists it."
    )


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="A copy of another machine's identity.pem.")],
) -> None:
    """Import a private key, so that this machine can publish for a study that another began."""
    keys = KeyPair.add(file)
    screen.say(
        f"{keys} is in {keys.path}. Studies that sign with it can publish from this machine now. "
        f"Remove {file} if nothing else needs it: whoever reads it can sign as this site."
    )
