"""The page of a hub: what it shows, who is logged in, and the files that a browser loads.

Everything comes from the hub itself; the page asks no other address for anything.
"""

from __future__ import annotations

from fastapi import FastAPI

from fedbo.hub.page import assets, overview, session


def mount(app: FastAPI) -> None:
    """Add the page to an application.

    Args:
        app: The application.
    """
    app.state.overviews = overview.Overviews()
    session.resource.mount(app)
    overview.resource.mount(app)
    assets.mount(app)
