"""How messages travel through a hub, on the side of a member."""
