"""Studies found by the address of their storage, and the space that a study's trials share."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

import optuna
from optuna.exceptions import ExperimentalWarning, OptunaError
from optuna.samplers import BaseSampler
from optuna.storages import RDBStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import create_engine, inspect
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from fedbo.optuna.distributions import describe, parameter_of
from fedbo.space import Direction, Parameter, Space

_LOCKED = 60.0  # seconds to wait for SQLite while other processes write
_BEAT, _GRACE = 30, 120  # seconds between heartbeats, and until a trial without them has failed
_PAUSES = (0.1, 0.2, 0.4, 0.8, 1.6, 0.0)  # seconds, while others may be creating the tables
_WITHOUT_PASSWORD = ("sqlite", "sqlite+pysqlite")
_HALF_MADE = ("already exists", "unique", "duplicate", "no such table", "locked", "schema")


class StorageRefused(ValueError):
    """A storage or a study cannot be opened."""


def shown(storage: str) -> str:
    """Return the address without its password, even if it is mistyped.

    >>> shown("postgresql://me:secret@server/trials")
    'postgresql://me:***@server/trials'
    >>> shown("postgresql//me:se@cret@server:port/trials")
    'postgresql//me:***@server:port/trials'
    """
    address, question, _ = storage.partition("?")  # drivers take passwords there, by many names
    scheme, slashes, rest = address.partition("://")
    scheme, rest = (scheme, rest) if slashes else ("", address)
    if scheme not in _WITHOUT_PASSWORD:
        before, at, server = rest.rpartition("@")
        user, colon, _ = re.sub("%3a", ":", before, flags=re.IGNORECASE).partition(":")
        if at and colon:
            rest = f"{user}:***@{server}"
        elif slashes and not at:  # what looks like a port may be a password without its server
            rest = re.sub(r":(?!\d*(/|$))[^/]*", ":***", rest, count=1)
    return scheme + slashes + rest + ("?***" if question else "")


def existing(storage: str, name: str, sampler: BaseSampler | None = None) -> optuna.Study:
    """Return the study of that name; if there is none, the error lists the others."""
    found = find(storage, name, sampler)
    if found is not None:
        return found
    file = _file(storage)
    if file is not None and not file.exists():
        hint = f": there is no file {file}"
    else:
        names = optuna.get_all_study_names(_open(storage)) if _has_tables(storage) else []
        hint = f"; its studies are {', '.join(map(repr, names))}" if names else "; it has no study"
    raise StorageRefused(f"there is no study {name!r} in {shown(storage)}{hint}")


def find(storage: str, name: str, sampler: BaseSampler | None = None) -> optuna.Study | None:
    """Return the study of that name, or None; nothing is created, not even an empty file."""
    if not _has_tables(storage):
        return None
    try:
        return optuna.load_study(study_name=name, storage=_open(storage), sampler=sampler)
    except KeyError:
        return None


def create(
    storage: str, name: str, direction: Direction, sampler: BaseSampler | None = None
) -> optuna.Study:
    """Return the study of that name, and create it if it does not exist."""
    file = _file(storage)
    if file is not None and not file.absolute().parent.is_dir():
        raise StorageRefused(
            f"the folder {file.absolute().parent} of {shown(storage)} does not exist: create it"
        )
    try:
        return optuna.create_study(
            study_name=name,
            storage=_open(storage),
            direction=direction,
            sampler=sampler,
            load_if_exists=True,
        )
    except (OptunaError, SQLAlchemyError) as error:
        problem = f"study {name!r} cannot be created in {shown(storage)}: {reason(error)}"
        raise StorageRefused(problem) from None


def reason(error: Exception) -> str:
    """Return what the database says went wrong, without SQL and links."""
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    cause = getattr(cause, "orig", None) or cause
    return str(cause).strip().splitlines()[0] if str(cause).strip() else type(cause).__name__


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


def _url(storage: str) -> URL:
    try:
        url = make_url(storage)
    except (ArgumentError, ValueError):  # ValueError: the port is not a number
        raise StorageRefused(
            f"the storage is {shown(storage)!r}, expected an address such as sqlite:///site.db for "
            "the file site.db in this folder"
        ) from None
    if "@" in (url.host or ""):  # a part of the password: a driver would look for that host
        raise StorageRefused(
            f"the storage is {shown(storage)!r}, with more than one @: write an @ in a user or a "
            "password as %40"
        )
    if url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:"):
        raise StorageRefused(
            f"the storage is {shown(storage)!r}, which is gone when the process ends: name a file, "
            "such as sqlite:///site.db"
        )
    return url


def _file(storage: str) -> Path | None:
    """SQLite's file; None for another database."""
    url = _url(storage)
    is_file = url.get_backend_name() == "sqlite" and not str(url.database).startswith("file:")
    return Path(str(url.database)) if is_file else None


def _has_tables(storage: str) -> bool:
    """Whether Optuna has created its tables there; True if that is not known."""
    url, file = _url(storage), _file(storage)
    if file is not None and not file.exists():
        return False
    try:
        engine = create_engine(url)
    except (ImportError, SQLAlchemyError):
        return True  # opening it says what is wrong
    try:
        return inspect(engine).has_table("studies")
    except SQLAlchemyError:
        return True
    finally:
        engine.dispose()


def _open(storage: str) -> RDBStorage:
    """Open a storage. If others are creating its tables at the same time, try again."""
    is_sqlite = _url(storage).get_backend_name() == "sqlite"
    options = {"connect_args": {"timeout": _LOCKED}} if is_sqlite else {}
    for pause in _PAUSES:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ExperimentalWarning)
                return RDBStorage(storage, options, heartbeat_interval=_BEAT, grace_period=_GRACE)
        except (ImportError, RuntimeError, SQLAlchemyError) as error:
            problem: Exception = error
        if not any(sign in str(problem).lower() for sign in _HALF_MADE):
            break
        time.sleep(pause)
    raise StorageRefused(f"{shown(storage)} cannot be opened: {reason(problem)}")


def _shared_parameter(name: str, trials: Sequence[FrozenTrial]) -> Parameter:
    given = [trial.distributions[name] for trial in trials if name in trial.distributions]
    first, other = given[0], next((another for another in given if another != given[0]), None)
    if other is not None:
        ranges = f"{describe(first)} in one trial and {describe(other)} in another"
        raise ValueError(f"parameter {name!r} has no fixed range: {ranges}")
    if len(given) < len(trials):
        some = f"{len(given)} of {len(trials)}"
        raise ValueError(f"parameter {name!r} is in {some} finished trials only")
    if first.single():
        raise ValueError(f"parameter {name!r} has one value only, {describe(first)}")
    return parameter_of(name, first)
