"""Tests for policies of your own: inherit `PolicyContract`, and pytest finds them.

Nothing else in fedbo imports pytest.
"""

import pytest

pytest.register_assert_rewrite("fedbo.testing.policies")  # so that a failed assert shows its values

from fedbo.testing.policies import BetaContract, PolicyContract  # noqa: E402

__all__ = ["BetaContract", "PolicyContract"]
