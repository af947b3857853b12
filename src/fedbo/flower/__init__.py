"""fedbo on Flower: the agents of a federation as the nodes of a fleet (extra ``[flower]``)."""

from fedbo.flower.client import client_app
from fedbo.flower.server import Rounds, server_app
from fedbo.flower.site import Site

__all__ = ["Rounds", "Site", "client_app", "server_app"]
