"""Forms of a message: each is what its bits allow, and only the rounding differs between runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import fedbo
from fedbo.model.compact import quantise, saturated
from fedbo.model.summary import summarise
from fedbo_paper.contests import contest, grounds, sizes
from fedbo_paper.harness.intervals import Effect


@pytest.fixture
def agreed(ground: grounds.Listed) -> fedbo.Federation:
    return fedbo.Federation(ground.space, kind="summary", format=1)


@pytest.fixture
def history(ground: grounds.Listed) -> contest.History:
    points = [ground.params(row) for row in (0, 3, 3, 7, 12, 20)]
    return [(params, ground.score(0, params)) for params in points]


def test_in_float32_it_is_what_an_agent_sends(
    agreed: fedbo.Federation, history: contest.History
) -> None:
    """Up to the noise: the covariance is the same, and the noise has the same variance."""
    ours = sizes.written(agreed, sizes.sender(agreed, history), 1, 0, None)
    theirs = contest.message(agreed, 1, history, 0)
    np.testing.assert_allclose(ours.covariance, theirs.covariance, atol=1e-6)
    assert (ours.sender, ours.t_n) == (theirs.sender, theirs.t_n)


def test_with_4_and_2_bits_it_is_what_a_receiver_makes_of_a_compact_message(
    agreed: fedbo.Federation, history: contest.History
) -> None:
    peer = sizes.sender(agreed, history)
    form = sizes.FORMS["4/2"]
    ours = sizes.written(agreed, peer, 1, 0, form)
    compact = fedbo.Federation(agreed.space, format=1)
    rng, counts = np.random.default_rng([5, 0, 1]), saturated(compact.counts(peer.X))
    m, _ = summarise(peer.belief, compact.known_of(counts), compact.basis.vectors, rng)
    levels, scales = quantise(m[None], rng)
    header: Any = {"epoch": 0, "sender": "a", "sequence": 1, "t_n": 6}
    sent = fedbo.Message.of_compact(
        levels[0], scales[0], counts, fingerprint=compact.fingerprint, **header
    )
    compact.check(sent)
    stands_for = compact.expand(sent)
    np.testing.assert_allclose(ours.nu, stands_for.nu, atol=1e-6)
    np.testing.assert_allclose(ours.covariance, stands_for.covariance, atol=1e-6)
    assert form.nbytes(len(m), len(counts)) == len(msgspec.msgpack.encode(sent.body))


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_coarse_counts_are_the_nearest_in_ratio(bits: int) -> None:
    counts, steps = np.arange(200), sizes.STEPS[bits]
    found = sizes.coarse(counts, bits)
    assert {*found} <= {*steps.tolist()} and len(steps) == 2**bits
    assert found[0] == 0 and (found[1:] > 0).all()
    for count in (1, 2, 3, 5, 9, 100):
        ratios = [max(count / step, step / count) for step in steps[1:]]
        assert max(count / found[count], found[count] / count) == min(ratios)


def test_fewer_bits_are_fewer_bytes_and_more_error(
    agreed: fedbo.Federation, history: contest.History
) -> None:
    peer = sizes.sender(agreed, history)
    whole = sizes.written(agreed, peer, 1, 0, None)
    errors = []
    for bits in (8, 6, 4, 2):
        forms = [sizes.written(agreed, peer, 1, seed, sizes.Form(bits, 8)) for seed in (0,)]
        errors.append(max(np.abs(each.nu - whole.nu).max() for each in forms))
    assert errors == sorted(errors) and errors[0] < 0.05 * np.abs(whole.nu).max()
    bytes_of = [form.nbytes(40, 64) for form in sizes.FORMS.values()]
    assert bytes_of == [124, 114, 104, 99, 94, 72, 56, 46]


def test_the_choice_is_the_smallest_form_that_costs_little() -> None:
    def ground(**bad: float) -> dict[str, Any]:
        found = {name: bad.get(name, 1.0) for name in sizes.FORMS}
        even = {
            name: {"even": {str(n): Effect(x, 0.9, 1.1, 9) for n in sizes.AT}}
            for name, x in found.items()
        }
        bytes_of = {name: form.nbytes(40, 64) for name, form in sizes.FORMS.items()}
        return {"bytes": bytes_of, "ratio": even}

    smallest, next_one = "2/2", "4/2"
    assert sizes.chosen({"a": ground(), "b": ground()}) == "2/2"
    costly = ground(**{smallest: 1.03})
    assert sizes.chosen({"a": costly, "b": ground()}) == "4/2"
    costly["ratio"]["2/2"]["even"]["20"] = Effect(0.95, 0.9, 1.1, 9)
    assert sizes.chosen({"a": costly, "b": ground()}) == "2/2"  # 1.003 on average
    costly = ground(**{smallest: 1.1, next_one: 1.1})
    assert sizes.chosen({"a": costly}) == "4/4"
    every = {name: 2.0 for name in sizes.FORMS}
    assert sizes.chosen({"a": ground(**every)}) == "8/8"


def test_several_grounds_are_pooled_by_their_logarithms() -> None:
    rng = np.random.default_rng(0)

    def ground(targets: int, factor: float) -> dict[str, Any]:
        runs = rng.uniform(0.5, 1.0, (targets, 4, 23))
        changed = runs * factor * np.exp(0.1 * rng.standard_normal(runs.shape))
        return {"runs": {"summary": runs.tolist(), "4/2": changed.tolist()}} | {
            "targets": [*range(targets)]
        }

    found = {"a": ground(30, 0.8), "b": ground(20, 1.1)}
    together = sizes.pooled(found, "4/2", "odd")
    ratios = {
        name: sizes.figures({k: np.array(v) for k, v in each["runs"].items()}, each["targets"])
        for name, each in found.items()
    }
    for at, effect in together.items():
        a, b = (ratios[name]["4/2"]["odd"][at] for name in "ab")
        assert effect.value == pytest.approx(np.sqrt(a.value * b.value))
        widths = [np.log(each.high / each.low) for each in (a, b, effect)]
        assert widths[2] == pytest.approx(np.hypot(*widths[:2]) / 2, rel=0.25)  # independent
        assert effect.n == 25
    same = sizes.pooled({"a": found["a"], "again": found["a"]}, "4/2", "odd")["1-20"]
    one = ratios["a"]["4/2"]["odd"]["1-20"]
    assert (same.value, same.low) == pytest.approx((one.value, one.low), rel=0.01)


@pytest.mark.slow
def test_from_a_table_to_json(path: Path, command: Any, capsys: pytest.CaptureFixture[str]) -> None:
    out = path.with_name("out.json")
    short = ("--seeds", 2, "--jobs", 1, "--evaluations", 5, "--box", "none", "--json", out)
    command(sizes, path, *short, "--forms", "8/8,weights,EI")
    [(name, found)] = json.loads(out.read_text())["grounds"].items()
    assert name == "svm" and found["targets"] == [0, 1, 2]
    assert [*found["ratio"]] == [*found["runs"]] == ["summary", "8/8", "weights", "EI"]
    assert found["ratio"]["summary"]["all"]["1-20"] == [1.0, 1.0, 1.0]
    runs = {name: np.array(values) for name, values in found["runs"].items()}
    assert {values.shape for values in runs.values()} == {(3, 2, 8)}
    mean = runs["EI"][:, :, 3:].mean() / runs["summary"][:, :, 3:].mean()
    assert found["ratio"]["EI"]["all"]["1-20"][0] == pytest.approx(mean, rel=1e-2)
    assert "ratio of regret to summaries in float32" in capsys.readouterr().out
