"""The package for OptunaHub: it loads from its folder, without a network, and past studies help."""

from __future__ import annotations

import re
import runpy
import socket
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.samplers import BaseSampler, RandomSampler, TPESampler

from fedbo.optuna import private

optunahub = pytest.importorskip("optunahub")

REGISTRY = Path(__file__).parents[2] / "integrations" / "optunahub" / "package"
PACKAGE = REGISTRY / "samplers" / "fedbo"


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket.socket, "connect", None)
    monkeypatch.setattr(socket, "getaddrinfo", None)


@pytest.fixture
def package() -> ModuleType:
    module: ModuleType = optunahub.load_local_module("samplers/fedbo", registry_root=str(REGISTRY))
    return module


def tuned(sampler: BaseSampler, shift: float, trials: int, noise: bool = False) -> optuna.Study:
    """Minimise a bowl around (0.6 + shift, 0.4 − shift), or nothing but noise."""
    rng = np.random.default_rng(0)

    def bowl(trial: optuna.Trial) -> float:
        x, y = (trial.suggest_float(name, 0, 1) for name in "xy")
        value = (x - 0.6 - shift) ** 2 + (y - 0.4 + shift) ** 2
        return float(rng.normal()) if noise else value

    study = optuna.create_study(sampler=sampler)
    study.optimize(bowl, n_trials=trials)
    return study


def past(noise: bool = False) -> list[optuna.Study]:
    return [tuned(RandomSampler(seed=i), 0.05 * (i - 1), 25, noise) for i in range(3)]


def test_past_studies_help_from_the_first_trial(package: ModuleType) -> None:
    studies, shifts = past(), (-0.08, -0.03, 0.02, 0.07)
    rgpe = [tuned(package.RGPESampler(studies, seed=0), shift, 1) for shift in shifts]
    tpe = [tuned(TPESampler(seed=i), shift, 4) for i, shift in enumerate(shifts)]
    means = [np.mean([study.best_value for study in them]) for them in (rgpe, tpe)]
    assert means[0] < 0.3 * means[1]
    assert not any(private.study_attributes(study) for study in studies)  # they are as they were


def test_past_studies_of_noise_are_left_behind(package: ModuleType) -> None:
    study = tuned(package.RGPESampler(past(noise=True), seed=1), 0.0, 15)
    assert study.best_value < 0.01


def test_past_studies_must_share_a_parameter(package: ModuleType) -> None:
    with pytest.raises(ValueError, match="share no parameter"):
        package.RGPESampler([optuna.create_study()])


def test_says_how_to_install_fedbo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fedbo.optuna", None)
    with pytest.raises(ImportError, match=re.escape("pip install 'fedbo[optuna]'")):
        optunahub.load_local_module("samplers/fedbo", registry_root=str(REGISTRY))


def test_example_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["example.py", "--quick"])
    runpy.run_path(str(PACKAGE / "example.py"))
    assert re.findall(r"^(\w+):", capsys.readouterr().out, re.M) == ["RGPE", "federated", "TPE"]


def test_page_is_in_the_format_of_the_registry() -> None:
    page = (PACKAGE / "README.md").read_text(encoding="utf-8")
    keys = re.findall(r"^(\w+): .", page.split("---")[1], re.M)
    assert keys == ["author", "title", "description", "tags", "optuna_versions", "license"]
    [example] = re.findall(r"```python\n(.*?)```", page, re.S)
    here = f"load_local_module(registry_root={str(REGISTRY)!r}, package="
    names: dict[str, Any] = {}
    exec(example.replace("load_module(", here), names)
    assert names["study"].best_value < 1.0
