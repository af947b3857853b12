"""What a hub does over HTTP: one file for each resource."""
