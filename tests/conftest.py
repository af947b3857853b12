"""Settings of all tests: a busy machine is no failure."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Studies wait for their exchange and their storage as long as it takes, in this process."""
    from fedbo.optuna import FederatedSampler

    monkeypatch.setattr("fedbo.optuna.sampler._FIRST_NEWS", 60.0)
    monkeypatch.setattr("fedbo.optuna.sampler._LOOKS", 6000)
    monkeypatch.setattr(FederatedSampler.flush, "__defaults__", (60.0,))
