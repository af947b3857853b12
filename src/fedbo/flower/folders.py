"""Where the server and the sites of a fleet keep what must outlive a run.

============  ==========================================================================
whose folder  where it is
============  ==========================================================================
a site's      ``<folder>/<federation>`` if its node config has a ``folder``; else
              ``<folder>/<federation>/sites`` if the run config has one; else
              ``flower/<federation>/sites`` in the user's state folder. Each site has a
              folder of its own in it.
the server's  ``<folder>/<federation>/server`` if the run config has a ``folder``; else
              ``flower/<federation>/server`` in the user's state folder
============  ==========================================================================

``<federation>`` is the fingerprint, so that several federations can use one folder. Paths are
absolute: Flower starts apps in folders of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr.app import Context

from fedbo.exchange.file import file_name
from fedbo.federation.federation import Federation
from fedbo.state import state_folder

FOLDER = "folder"  # in the configurations of a node and of a run


def site_folder(federation: Federation, name: str, context: Context) -> Path:
    """Return the folder of the site with this name, from Flower's context of its node."""
    own = _configured("node config", context.node_config)
    shared = run_folder(federation, context) / "sites"
    sites = shared if own is None else own / str(federation.fingerprint)
    return sites / Path(file_name(name, b"")).stem


def server_folder(federation: Federation, context: Context) -> Path:
    """Return the folder of the server, from Flower's context of the ServerApp."""
    return run_folder(federation, context) / "server"


def run_folder(federation: Federation, context: Context) -> Path:
    """Return the folder of a federation, in which all others are, unless a node has its own."""
    folder = _configured("run config", context.run_config)
    return (folder or state_folder() / "flower") / str(federation.fingerprint)


def _configured(whose: str, config: Mapping[str, Any]) -> Path | None:
    if not (text := config.get(FOLDER)):
        return None
    path = Path(str(text)).expanduser()
    if not path.is_absolute():
        raise ValueError(
            f"folder in the {whose} is {text!r}, expected an absolute path, because Flower starts "
            "apps in folders of its own"
        )
    return path
