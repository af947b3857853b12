"""Studies found by the address of their storage, and the space that a study's trials share.

A storage is the URL of a database, or the file of Optuna's `JournalStorage`. Nothing is created:
no file, no table, no study.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import optuna
from optuna.exceptions import OptunaError
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from fedbo.errors import StorageRefused
from fedbo.optuna.distributions import describe, parameter_of
from fedbo.outside import without_password
from fedbo.space import Parameter, Space

_LOCKED = 60.0  # seconds to wait for SQLite while other processes write
_JOURNAL = "journal:"
_SQLITE = b"SQLite format 3"  # the beginning of its files


def existing(storage: str, name: str) -> optuna.Study:
    """Return the study of that name; if there is none, the error lists the others.

    Args:
        storage: The URL of a database, such as ``sqlite:///site.db``, or the file of a
            `JournalStorage`, such as ``site.log`` or ``journal:site.log``.
        name: The name of the study.

    Raises:
        StorageRefused: If there is no such storage, or no such study.
    """
    shown = without_password(storage)
    try:
        opened = _open(storage)
        names = optuna.get_all_study_names(opened)
        if name in names:
            return optuna.load_study(study_name=name, storage=opened)
    except (ImportError, OSError, RuntimeError, OptunaError, SQLAlchemyError) as error:
        raise StorageRefused(f"{shown} cannot be opened: {_reason(error)}") from None
    except (KeyError, ValueError) as error:
        if isinstance(error, StorageRefused):
            raise
        raise StorageRefused(f"{shown} is not a storage of Optuna: {error}") from None
    others = f"its studies are {', '.join(map(repr, names))}" if names else "it has no study"
    raise StorageRefused(f"there is no study {name!r} in {shown}; {others}")


def space_of(storage: str, name: str) -> tuple[Space, list[str]]:
    """Return the space that all finished trials share, and a remark on every other parameter."""
    study = existing(storage, name)
    if len(study.directions) > 1:
        raise ValueError(
            f"study {name!r} has {len(study.directions)} objectives, but a federation tunes one"
        )
    trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if not trials:
        raise ValueError(
            f"study {name!r} has no finished trial, so its parameters are not known: run one, or "
            "describe the space in a file and give it with --from-space"
        )
    parameters: dict[str, Parameter] = {}
    remarks: list[str] = []
    for parameter in sorted({key for trial in trials for key in trial.distributions}):
        try:
            parameters[parameter] = _shared_parameter(parameter, trials)
        except ValueError as error:
            remarks.append(str(error))
    if not parameters:
        lines = [f"study {name!r} has no parameter that sites can share:", *remarks]
        raise ValueError("\n  ".join(lines))
    is_minimised = study.direction == StudyDirection.MINIMIZE
    return Space(parameters, direction="minimize" if is_minimised else "maximize"), remarks


def _open(storage: str) -> BaseStorage:
    is_journal = storage.startswith(_JOURNAL)
    if is_journal or "://" not in storage:
        return _open_journal(Path(storage.removeprefix(_JOURNAL)), storage)
    try:
        url = make_url(storage)
    except (ArgumentError, ValueError):  # ValueError: the port is not a number
        raise StorageRefused(
            f"the storage is {without_password(storage)!r}, expected an address such as "
            "sqlite:///site.db for the file site.db in this folder"
        ) from None
    if "@" in (url.host or ""):  # a part of the password: a driver would look for that host
        raise StorageRefused(
            f"the storage is {without_password(storage)!r}, with more than one @: write an @ in a "
            "user or a password as %40"
        )
    options = {}
    if url.get_backend_name() == "sqlite":
        options["connect_args"] = {"timeout": _LOCKED}
        is_file = not str(url.database).startswith("file:")
        if not url.database or (is_file and not Path(url.database).exists()):
            raise StorageRefused(f"there is no file {url.database or 'in ' + storage!r}")
    return RDBStorage(storage, options, skip_table_creation=True)


def _open_journal(file: Path, storage: str) -> JournalStorage:
    if not file.is_file():
        raise StorageRefused(
            f"there is no file {without_password(str(file))!r}: give the file of a JournalStorage, "
            "or the address of a database, such as sqlite:///site.db"
        )
    with file.open("rb") as opened:
        if opened.read(len(_SQLITE)) == _SQLITE:
            raise StorageRefused(f"{file} is an SQLite database: give sqlite:///{file}")
    return JournalStorage(JournalFileBackend(str(file)))


def _reason(error: Exception) -> str:
    """Return what the database says went wrong, without SQL and links."""
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    cause = getattr(cause, "orig", None) or cause
    return str(cause).strip().splitlines()[0] if str(cause).strip() else type(cause).__name__


def _shared_parameter(name: str, trials: Sequence[FrozenTrial]) -> Parameter:
    ranges = [trial.distributions[name] for trial in trials if name in trial.distributions]
    first, other = ranges[0], next((other for other in ranges if other != ranges[0]), None)
    if other is not None:
        both = f"{describe(first)} in one trial and {describe(other)} in another"
        raise ValueError(f"parameter {name!r} has no fixed range: {both}")
    if len(ranges) < len(trials):
        some = f"{len(ranges)} of {len(trials)}"
        raise ValueError(f"parameter {name!r} is in {some} finished trials only")
    if first.single():
        raise ValueError(f"parameter {name!r} has one value only, {describe(first)}")
    return parameter_of(name, first)
