"""Contests: each task in turn is the target, and all others are its peers."""
