"""Where the server and the sites of a fleet keep what must outlive a run.

============  ==========================================================================
whose folder  where it is: the first that is given
============  ==========================================================================
a site's      ``folder`` in its node config; ``<folder>/sites`` if the run config has a
              ``folder``; ``flower/<federation>/sites`` in the user's state folder. Each
              site has a folder of its own in it.
the server's  ``<folder>/server``; ``flower/<federation>/server`` in the user's state
              folder
============  ==========================================================================

Paths are absolute: Flower starts apps in folders of its own. ``<federation>`` is the part of the
fingerprint that is the same in all epochs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr.app import Context

from fedbo.exchange.file import file_name
from fedbo.federation import Federation
from fedbo.state import state_folder

FOLDER = "folder"  # in the configurations of a node and of a run


def site_folder(federation: Federation, name: str, context: Context) -> Path:
    """Return the folder of a site.

    Args:
        federation: What all sites agree on.
        name: What the site is called.
        context: Flower's context of the node.
    """
    own = _given("node config", context.node_config)
    return (own or run_folder(federation, context) / "sites") / Path(file_name(name, b"")).stem


def server_folder(federation: Federation, context: Context) -> Path:
    """Return the folder of the server.

    Args:
        federation: What all sites agree on.
        context: Flower's context of the ServerApp.
    """
    return run_folder(federation, context) / "server"


def run_folder(federation: Federation, context: Context) -> Path:
    """Return the folder that all folders of a run are in, unless a node has its own.

    Args:
        federation: What all sites agree on.
        context: Flower's context of the node or of the ServerApp.
    """
    given = _given("run config", context.run_config)
    return given or state_folder() / "flower" / federation.fingerprint.lasting


def _given(whose: str, config: Mapping[str, Any]) -> Path | None:
    if not (text := config.get(FOLDER)):
        return None
    path = Path(str(text)).expanduser()
    if not path.is_absolute():
        raise ValueError(
            f"folder in the {whose} is {text!r}, expected an absolute path, because Flower starts "
            "apps in folders of its own"
        )
    return path
