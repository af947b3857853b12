"""Suites of tests that every implementation inherits, third parties' included."""

import pytest

# so that a failed assert shows its values
pytest.register_assert_rewrite("contracts.exchange")
