"""One harness for all contests: each task in turn is the target, and policies compete on it."""
