"""Experiments: data that ships with scikit-learn, and whole federations run on it."""
