"""Optuna's distributions and fedbo's parameters."""

from __future__ import annotations

import warnings

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from fedbo import Categorical, Federation, Float, Int, Space
from fedbo.optuna import FederatedSampler
from fedbo.optuna.distributions import (
    advice,
    distribution_of,
    misfit,
    parameter_of,
    tunable,
)
from fedbo.optuna.sampler import _fitted
from fedbo.space import Parameter

PAIRS: list[tuple[BaseDistribution, Parameter]] = [
    (FloatDistribution(-1, 2), Float(-1, 2)),
    (FloatDistribution(1e-7, 1, log=True), Float(1e-7, 1, log=True)),
    (FloatDistribution(-10.2, 10.2, step=0.1), Float(-10.2, 10.2, step=0.1)),
    (IntDistribution(-3, 9), Int(-3, 9)),
    (IntDistribution(1, 100, log=True), Int(1, 100, log=True)),
    (IntDistribution(3, 9, step=2), Int(3, 9, step=2)),
    (CategoricalDistribution(["a", 1, 2.5, False]), Categorical(["a", 1, 2.5, False])),
    (CategoricalDistribution(["None", None, 3]), Categorical(["None", None, 3])),
]


@pytest.mark.parametrize(("distribution", "parameter"), PAIRS, ids=str)
def test_each_kind_goes_there_and_back(
    distribution: BaseDistribution, parameter: Parameter
) -> None:
    assert parameter_of("p", distribution) == parameter
    assert distribution_of(parameter) == distribution
    assert misfit(distribution, parameter) == ""


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_what_fedbo_decodes_is_in_optunas_distribution(data: st.DataObject) -> None:
    distribution, parameter = data.draw(st.sampled_from(PAIRS))
    space = Space({"p": parameter})
    x = data.draw(st.lists(st.floats(0, 1), min_size=space.dimensions, max_size=space.dimensions))
    value = space.decode(x)["p"]
    internal = distribution.to_internal_repr(value)
    assert distribution._contains(internal)
    # ... and what Optuna's storages make of it is the same point for fedbo
    again = space.encode({"p": distribution.to_external_repr(internal)})
    assert (again == space.encode({"p": value})).all()


@pytest.mark.parametrize(
    ("distribution", "parameter", "said"),
    [
        (FloatDistribution(0, 1), Float(0, 2), "high is 1.0 in the objective and 2.0 in the fed"),
        (FloatDistribution(0.5, 2), Float(0, 2), "low is 0.5 in the objective and 0.0 in the fed"),
        (
            FloatDistribution(1, 2),
            Float(1, 2, log=True),
            "log is False in the objective and True in the federation",
        ),
        (
            FloatDistribution(0, 2, step=0.5),
            Float(0, 2),
            "step is 0.5 in the objective and None in the federation",
        ),
        (IntDistribution(0, 2), Float(0, 2), "it is an int in the objective and a float in the"),
        (FloatDistribution(0, 2), Int(0, 2), "it is a float in the objective and an int in the"),
        (
            CategoricalDistribution(["a", "b"]),
            Categorical(["a", "c"]),
            "choices are ['a', 'b'] in the objective and ['a', 'c'] in the federation",
        ),
        (CategoricalDistribution([1, 0]), Categorical([True, False]), "choices are [1, 0] in the"),
        (CategoricalDistribution([None, "a"]), Categorical(["a", "b"]), "choices are [None, 'a']"),
        (
            CategoricalDistribution(["None", "a"]),
            Categorical([None, "a"]),
            "choices are ['None', 'a'] in the objective and [None, 'a'] in the federation",
        ),
    ],
)
def test_a_difference_is_named_with_what_to_do(
    distribution: BaseDistribution, parameter: Parameter, said: str
) -> None:
    sentence = advice("p", distribution, parameter)
    assert sentence is not None and said in sentence and sentence.startswith("parameter 'p': ")
    line = sentence.split("Suggest it as ")[1].split(", or agree")[0]
    trial = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0)).ask()
    eval(line, {"trial": trial})  # the advice, followed
    assert misfit(trial.distributions["p"], parameter) == ""


@pytest.mark.parametrize(
    ("distribution", "parameter", "inside"),
    [
        (FloatDistribution(0.5, 1), Float(0, 2), True),
        (FloatDistribution(0.5, 3), Float(0, 2), False),
        (FloatDistribution(1, 2), Float(1, 4, log=True), False),
        (FloatDistribution(0.5, 1, step=0.5), Float(0, 2, step=0.5), True),
        (FloatDistribution(0.4, 1.4, step=0.5), Float(0, 2, step=0.5), False),
        (IntDistribution(3, 5), Int(1, 9), True),
        (IntDistribution(3, 5, step=2), Int(1, 9, step=2), True),
        (IntDistribution(2, 4, step=2), Int(1, 9, step=2), False),
        (IntDistribution(3, 5), Float(1, 9), False),
        (CategoricalDistribution(["a", "b"]), Categorical(["a", "b", "c"]), False),
    ],
)
def test_a_range_inside_the_federations_may_be_clipped_to(
    distribution: BaseDistribution, parameter: Parameter, inside: bool
) -> None:
    sentence = advice("p", distribution, parameter)
    assert sentence is not None and ("clip=True" in sentence) == inside
    assert (misfit(distribution, parameter, clip=True) == "") == inside
    if inside:
        ends = distribution_of(parameter)
        for end in (ends.low, ends.high):  # type: ignore[attr-defined]
            value = _fitted(end, distribution)
            assert distribution._contains(value) and type(value) is type(end)


def test_what_is_too_much_for_a_model_is_left_out_and_said() -> None:
    parameters, refusals = tunable(
        {
            "large": CategoricalDistribution([*range(2000)]),
            "a": CategoricalDistribution([*range(600)]),
            "b": CategoricalDistribution([*range(600)]),
            "\ud800": FloatDistribution(0, 1),
            "x": FloatDistribution(0, 1),
        }
    )
    assert [*parameters] == ["a", "x"]
    large, b, name = refusals
    assert "'large'" in large and "there are 2000 choices" in large and len(large) < 500
    assert b == "parameter 'b' is beyond 1000 dimensions"
    assert "text that a file can hold" in name


@pytest.mark.parametrize("shared", [True, False], ids=["federation", "no federation"])
def test_a_study_tunes_a_parameter_that_may_be_none(shared: bool) -> None:
    space = Space({"depth": Categorical([None, 3, "None"])}, direction="minimize")
    sampler = FederatedSampler(Federation(space, features=20) if shared else None, seed=0)
    study = optuna.create_study(sampler=sampler)
    worst = {None: 0.0, "None": 1.0, 3: 2.0}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        study.optimize(
            lambda trial: worst[trial.suggest_categorical("depth", ["None", None, 3])], n_trials=20
        )
    depths = [trial.params["depth"] for trial in study.trials]
    assert {*depths} == {None, 3, "None"} and depths[10:].count(None) > 5
    assert sampler.agent is not None and sampler.agent.best is not None
    assert sampler.agent.best.params == {"depth": None}
    assert len(sampler.agent.trials) == 20
