"""RGPE with one objective: a ranking-weighted ensemble of the Gaussian processes of past studies.

Each past study becomes a function: fedbo regresses its scores, in standard units, on random Fourier
features, and the result is the mean and the covariance of the weights of these features. The study
that runs has a Gaussian process of its own. A model's share in the ensemble is how often its draws
order the scores of the running study best (Feurer et al. 2018), and the next trial is where the
expected improvement of the ensemble is largest.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import ClassVar

import msgspec
import numpy as np
import optuna
from optuna.search_space import intersection_search_space
from optuna.trial import TrialState

from fedbo import RGPE, Federation, Origin, Query, Target
from fedbo.message import Message
from fedbo.message.inbox import BeliefInbox, held
from fedbo.model.kernel import Array
from fedbo.optuna import FederatedSampler
from fedbo.optuna.distributions import tunable
from fedbo.space import Direction, Space

_SCORED = (TrialState.COMPLETE, TrialState.PRUNED)
_LENGTH_SCALE = 0.2  # of the functions of past studies, times √D on the unit cube
_COMPARED = 3  # scores, before which nothing can be said about who orders them best


class PastStudies(RGPE, frozen=True):
    """RGPE with the messages of past studies, from the first trial on.

    The first trials are where all past studies together expect most. Once none of them is of use,
    the study goes on as if it were alone, with its initial points first.
    """

    messages: tuple[Message, ...] = ()

    begins: ClassVar[bool] = True

    def query(self, target: Target) -> Query:
        inbox = BeliefInbox(target.federation.features)
        for message in self.messages:
            inbox.hold(held(message))
        target = dataclasses.replace(target, inbox=inbox)
        own, past = self.shares(target)
        if not past.any() and target.starting and target.initial is not None:
            return Query(target.initial, Origin("initial"))
        trust = Origin(trust=target.named(np.arange(len(past)), past))
        if not len(target.X):
            return target.query_draw(target.phi.function(past @ inbox.nu), trust)
        improvement = self.acquisition(target, own, past)
        return target.query_acquisition(improvement, trust, or_next_best=True)

    def shares(self, target: Target) -> tuple[float, Array]:
        if len(target.X) < _COMPARED:
            return 0.0, np.full(len(target.inbox), 1 / len(target.inbox))
        return super().shares(target)


class RGPESampler(FederatedSampler):
    """Tunes the parameters of a study with the help of past studies of similar tasks.

    It tunes the parameters that all trials of the past studies have, with the same ranges. The
    study may have others: they are tuned too, but the past studies say nothing about them.
    Nothing leaves the process, and the past studies are not changed.

    Args:
        past_studies: Studies with one objective, and the direction of the new one. At least one.
        seed: The seed of everything random. Default: drawn.
        features: The number of random features that stand for the Gaussian process of a past study.
        samples: The number of draws of each model that decide its share.
        independent_sampler: Samples parameters that only some trials have. Default: `TPESampler`.
    """

    def __init__(
        self,
        past_studies: Sequence[optuna.Study],
        *,
        seed: int | None = None,
        features: int = 300,
        samples: int = 100,
        independent_sampler: optuna.samplers.BaseSampler | None = None,
    ) -> None:
        past_studies = list(past_studies)
        space = _shared_space(past_studies)
        length_scale = _LENGTH_SCALE * math.sqrt(space.dimensions)
        federation = Federation(space, features=features, length_scale=length_scale, kind="belief")
        messages = []
        for i, study in enumerate(past_studies):
            message = FederatedSampler(federation, policy=RGPE(), seed=0).preview(study)
            if message is None:
                raise ValueError(
                    f"study {study.study_name!r} has no finished and feasible trial with a value: "
                    "leave it out"
                )
            # The name that a study has among peers may be random, and decides the draws.
            messages.append(msgspec.structs.replace(message, sender=f"past-{i}"))
        policy = PastStudies(samples=samples, messages=tuple(messages))
        super().__init__(
            federation, policy=policy, seed=seed, independent_sampler=independent_sampler
        )


def _shared_space(studies: Sequence[optuna.Study]) -> Space:
    """Return the parameters that all scored trials of the studies have, with the same ranges."""
    if not studies:
        raise ValueError("past_studies is empty, expected at least one study")
    for study in studies:
        if len(study.directions) > 1 or study.directions != studies[0].directions:
            raise ValueError(
                f"study {study.study_name!r} has the directions {study.directions} and the first "
                f"one {studies[0].directions}, expected one direction, the same in all studies"
            )
    trials = [t for s in studies for t in s.get_trials(deepcopy=False, states=_SCORED)]
    shared = intersection_search_space(trials, include_pruned=True)
    parameters, refusals = tunable({name: d for name, d in shared.items() if not d.single()})
    if not parameters:
        raise ValueError(
            "the past studies share no parameter that can be tuned, with the same range in all "
            "trials: " + ("; ".join(refusals) or f"the shared ones are {[*shared]}")
        )
    direction: Direction = studies[0].direction.name.lower()
    return Space(parameters, direction=direction)
