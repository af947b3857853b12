"""The agent of a stored study, rebuilt to be explained. The study is only read."""

from __future__ import annotations

import optuna
from optuna.trial import TrialState

from fedbo import caller
from fedbo.agent import Agent
from fedbo.agent.settings import Settings
from fedbo.federation import Federation
from fedbo.message import Fingerprint
from fedbo.message.signed import PARTS
from fedbo.optuna import join, record
from fedbo.optuna.study_agent import Recipe, StudyAgent


class StudyRefused(ValueError):
    """A study has no agent that can be explained."""


def had_federation(study: optuna.Study) -> bool:
    """Tell whether the study was run with a federation file."""
    known = record.identity(study)
    return known is not None and bool(known.federation)


def stored_agent(
    study: optuna.Study, federation: Federation | None = None, settings: Settings | None = None
) -> Agent:
    """Return the agent of a study, told all its trials; it holds no messages of peers.

    A study stores neither the policy nor the settings of its agent. The policy is the default for
    the federation's kind of message.

    Args:
        study: The study. It is not changed.
        federation: The federation that the study takes part in; None if it made its own.
        settings: The settings of the agent. Default: those of `fedbo.Agent`.

    Raises:
        StudyRefused: If the study has no score, or does not belong to the federation.
    """
    mine = f"study {study.study_name!r}"
    if len(study.directions) > 1:
        raise StudyRefused(f"{mine} has {len(study.directions)} objectives, expected one")
    if not study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
        raise StudyRefused(f"{mine} has no score yet: run a trial first")
    known = record.identity(study)
    if known is None:
        raise StudyRefused(f"{mine} has no trial that fedbo asked for: there is nothing to explain")
    _check(mine, known, federation)
    recipe = Recipe(
        federation=federation,
        policy=join.POLICIES["compact" if federation is None else federation.kind](),
        settings=settings,
        seed=None,
        name=None,
        clip=federation is not None and federation.space.points is None,
    )
    with caller.collect():  # a study gives its warnings when it runs
        mirror = StudyAgent(study, recipe).look()
    if mirror is None:
        raise StudyRefused(f"{mine} has no parameter that fedbo can tune and all trials share")
    if not mirror.scores:
        raise StudyRefused(f"{mine} has no score at a point of its federation's space")
    return mirror.agent


def _check(mine: str, known: record.Identity, federation: Federation | None) -> None:
    """Refuse a federation that is not the study's; any epoch of it is accepted."""
    if federation is None:
        if known.federation:
            raise StudyRefused(
                f"{mine} takes part in the federation {known.federation}: give its file with "
                "--federation"
            )
        return
    if not known.federation:
        raise StudyRefused(f"{mine} was run without a federation file: leave out --federation")
    began = Fingerprint(bytes.fromhex(known.federation.replace("-", "")))
    part = federation.fingerprint.difference(began)
    is_other_epoch = part == "scalars" and federation.epoch != known.epoch
    if part is not None and not is_other_epoch:
        raise StudyRefused(
            f"{mine} takes part in the federation {known.federation}, but the file is of "
            f"{federation.fingerprint}: {PARTS[part]}. Give the file that the study was run with"
        )
