"""What is special to the tests of policies."""

from __future__ import annotations

import pytest


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the statistics of fedbo.testing as slow, which knows nothing of our marks."""
    for item in items:
        if getattr(item, "originalname", "") == "test_it_beats_random_search":
            item.add_marker("slow")
