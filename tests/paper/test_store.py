"""The store of finished jobs: a result is reused only while nothing it depends on has changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fedbo.table import Table
from fedbo_paper.experiments import keys, results, runner
from fedbo_paper.experiments.keys import key
from fedbo_paper.experiments.plan import Plan, plan
from fedbo_paper.experiments.selection import wanted
from fedbo_paper.experiments.spec import Diagnosis
from fedbo_paper.harness.store import Store, source_digest
from fedbo_paper.problems.problems import Glass, Landmine
from fedbo_paper.reproduce import reproduce

JOB = Diagnosis(
    problem=Glass(stand_in=True), preset="paper", maximiser="refine", M=100, t_n=50, peers=10,
    targets=4, seed=0,
)  # fmt: skip
TABLE = Table({"mean": [0.5] * JOB.rows})


Change = Callable[[pytest.MonkeyPatch], Diagnosis]


def changed_job(monkeypatch: pytest.MonkeyPatch) -> Diagnosis:
    return msgspec.structs.replace(JOB, seed=1)


def changed_data(monkeypatch: pytest.MonkeyPatch) -> Diagnosis:
    keys.data_digest.cache_clear()
    stand_in = keys.gleam.stand_in
    monkeypatch.setattr(keys.gleam, "stand_in", lambda: stand_in(seed=1))
    return JOB


def changed_source(monkeypatch: pytest.MonkeyPatch) -> Diagnosis:
    monkeypatch.setattr(keys, "source_digest", lambda *_: "other source")
    return JOB


@pytest.fixture
def fresh_data() -> Iterator[None]:
    yield
    keys.data_digest.cache_clear()


@pytest.mark.usefixtures("fresh_data")
class TestKey:
    def test_an_unchanged_job_is_reused(self, tmp_path: Path) -> None:
        Store(tmp_path, key).put(JOB, TABLE)
        keys.data_digest.cache_clear()
        source_digest.cache_clear()
        again = msgspec.structs.replace(JOB)
        assert again in Store(tmp_path, key) and Store(tmp_path, key).get(again) == TABLE

    @pytest.mark.parametrize("change", [changed_job, changed_data, changed_source])
    def test_whatever_changes_the_job_runs_again(
        self, change: Change, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        Store(tmp_path, key).put(JOB, TABLE)
        job = change(monkeypatch)
        assert job not in Store(tmp_path, key) and Store(tmp_path, key).get(job) is None

    @pytest.mark.parametrize("library", ["numpy", "scipy", "scikit-learn"])
    def test_a_new_version_of_a_library_gives_a_new_key(
        self, library: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before, versions = key(JOB), keys.library_versions(*keys.LIBRARIES)
        monkeypatch.setattr(keys, "library_versions", lambda *_: versions | {library: "99.0"})
        assert key(JOB) != before

    def test_every_run_of_a_figure_has_its_own_key(self) -> None:
        runs = plan(wanted(["fig1"], quick=True)[0], None).runs
        assert len({key(run) for run in runs}) == len(runs)


class TestDigests:
    def test_data_are_told_apart_by_their_content(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one, two = keys.gleam.stand_in(seed=0), keys.gleam.stand_in(seed=1)
        contents = {tmp_path / "a": one, tmp_path / "copy of a": one, tmp_path / "b": two}
        monkeypatch.setattr(keys.landmine, "load", lambda folder: contents[folder])
        a, copy, b = (keys.data_digest(Landmine(), folder) for folder in contents)
        assert a == copy != b

    def test_source_is_told_apart_by_names_and_bytes(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.syspath_prepend(str(tmp_path))

        def digest(**sources: str) -> str:
            name = f"room{len([*tmp_path.iterdir()])}"
            (tmp_path / name / "inner").mkdir(parents=True)
            (tmp_path / name / "__init__.py").touch()
            for file, text in sources.items():
                (tmp_path / name / "inner" / f"{file}.py").write_text(text)
            (tmp_path / name / "notes.txt").write_text(name)  # is not source
            return source_digest(name)

        first = digest(a="x = 1\n", b="")
        assert first == digest(b="", a="x = 1\n")
        others = [digest(a="x = 2\n", b=""), digest(a="x = 1\n"), digest(a="x = 1\n", c="")]
        assert len({first, *others}) == 4

    def test_all_that_computes_is_digested(self) -> None:
        digests = {source_digest(*keys.SOURCE[:n]) for n in range(len(keys.SOURCE) + 1)}
        assert len(digests) == len(keys.SOURCE) + 1


def test_a_report_names_runs_that_are_out_of_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pretend(plans: list[Plan], store: Store[Any], *_: object) -> None:
        for run in plans[0].runs[:20]:
            iterations = [0, *range(1, run.iterations + 1)]
            columns = {name: [0.5] * run.rows for name in results.MEASURED}
            words = {name: [""] * run.rows for name in ("source", "peer")}
            store.put(run, Table(columns | words | {"iteration": iterations}))

    monkeypatch.setattr(runner, "run", pretend)
    default, paper = (wanted(["fig1"], presets=(p,), quick=True) for p in ("default", "paper"))
    assert reproduce(default, tmp_path).missing == {}
    monkeypatch.setattr(keys, "source_digest", lambda *_: "other source")
    outcome = reproduce(paper, tmp_path)
    assert {*outcome.runs["preset"].tolist()} == {"paper"}
    assert "(default preset) were made with other code" in outcome.missing["synthetic"]
    assert "run its command again" in (tmp_path / "report.html").read_text(encoding="utf-8")
