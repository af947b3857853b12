"""What tests of studies share."""

from __future__ import annotations

import optuna

PATIENCE = 60.0  # seconds, for what takes none on a machine that is not busy


def settle(study: optuna.Study) -> None:
    """Wait for what is fetched and sent after a trial; what went wrong becomes warnings."""
    sampler = study.sampler
    assert sampler._mail.courier.wait(PATIENCE)  # type: ignore[attr-defined]
    sampler._pass_on_complaints()  # type: ignore[attr-defined]
