"""Suites of tests that every implementation inherits, third parties' included."""

import pytest

pytest.register_assert_rewrite("contracts.exchange", "contracts.policy")  # so that a failed assert shows its values
