"""The store of finished jobs: a result is reused only while nothing it depends on has changed."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import msgspec
import pytest

from fedbo.table import Table
from fedbo_paper.experiments import runner
from fedbo_paper.experiments.plan import Run, plan
from fedbo_paper.experiments.spec import wanted
from fedbo_paper.harness import store as stores
from fedbo_paper.harness.store import Store, source_digest
from fedbo_paper.harness.workers import WorkersFailed

RUNS = plan(wanted("fig1", quick=True)[0], None).runs
JOB = RUNS[0]
TABLE = Table({"score": [0.5] * JOB.rows})


def test_an_unchanged_job_is_reused_and_another_one_is_not(tmp_path: Path) -> None:
    Store(tmp_path, runner.key).put(JOB, TABLE)
    source_digest.cache_clear()
    assert Store(tmp_path, runner.key).get(msgspec.structs.replace(JOB)) == TABLE
    assert msgspec.structs.replace(JOB, seed=1) not in Store(tmp_path, runner.key)


def test_new_source_and_new_libraries_give_new_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {runner.key(JOB)}
    for name, value in (("source_digest", "other"), ("library_versions", {"numpy": "99.0"})):
        with monkeypatch.context() as patch:
            patch.setattr(stores, name, lambda *_, value=value: value)
            keys.add(runner.key(JOB))
    assert len(keys) == 3


def test_all_that_computes_is_digested() -> None:
    digests = {source_digest(*runner.SOURCE[:n]) for n in range(len(runner.SOURCE) + 1)}
    assert len(digests) == len(runner.SOURCE) + 1


def test_a_worker_with_another_key_refuses_the_job(tmp_path: Path) -> None:
    answers = iter(["a", "b", "c", "c"])
    store: Store[Run] = Store(tmp_path, lambda job: next(answers))
    with pytest.raises(WorkersFailed):
        store.guarded(JOB, partial(Table, {}))()
    assert store.guarded(JOB, lambda: TABLE)() is TABLE
