"""Where the server and the sites of a fleet keep what must outlive a run.

The folder is named in the config of a node or a run, by an absolute path: Flower starts apps in
folders of its own. The fingerprint is a part of each path, so that federations can share a folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr.app import Context

from fedbo.exchange.folder import file_name
from fedbo.federation.federation import Federation
from fedbo.state import state_folder


def site_folder(federation: Federation, name: str, context: Context) -> Path:
    """Return the folder of the site with this name, from Flower's context of its node."""
    own = _configured("node config", context.node_config)
    shared = run_folder(federation, context) / "sites"
    sites = shared if own is None else own / str(federation.fingerprint)
    return sites / Path(file_name(name, b"")).stem


def run_folder(federation: Federation, context: Context) -> Path:
    """Return the folder of a federation, in which all others are, unless a node has its own."""
    folder = _configured("run config", context.run_config)
    return (folder or state_folder() / "flower") / str(federation.fingerprint)


def _configured(whose: str, config: Mapping[str, Any]) -> Path | None:
    if not (text := config.get("folder")):
        return None
    path = Path(str(text)).expanduser()
    if not path.is_absolute():
        raise ValueError(
            f"folder in the {whose} is {text!r}, expected an absolute path, because Flower starts "
            "apps in folders of its own"
        )
    return path
