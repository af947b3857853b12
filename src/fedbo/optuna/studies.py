"""Studies by the address of their storage: opened safely, and refused in sentences."""

from __future__ import annotations

import time
import warnings
from pathlib import Path

import optuna
from optuna.exceptions import ExperimentalWarning, OptunaError
from optuna.samplers import BaseSampler
from optuna.storages import RDBStorage
from sqlalchemy import create_engine, inspect
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from fedbo.space import Direction

_LOCKED = 60.0  # seconds to wait for SQLite while other processes write
_BEAT, _GRACE = 30, 120  # seconds between heartbeats of a trial, and without one until it failed
_PAUSES = (0.1, 0.2, 0.4, 0.8, 1.6, 0.0)  # seconds, while others may be setting up a storage


class StorageRefused(ValueError):
    """A storage or a study that cannot be had; the text says why, and what there is."""


def shown(storage: str) -> str:
    """The address as it may be printed: without the password.

    >>> shown("postgresql://me:secret@server/trials")
    'postgresql://me:***@server/trials'
    """
    return _url(storage).render_as_string(hide_password=True)


def existing(storage: str, name: str, sampler: BaseSampler | None = None) -> optuna.Study:
    """The study of that name; nothing is made, not even an empty file."""
    found = find(storage, name, sampler)
    if found is None:
        raise StorageRefused(f"there is no study {name!r} in {shown(storage)}{_names(storage)}")
    return found


def find(storage: str, name: str, sampler: BaseSampler | None = None) -> optuna.Study | None:
    """The study of that name, or None; nothing is made."""
    if not _is_made(storage):
        return None
    try:
        return optuna.load_study(study_name=name, storage=_opened(storage), sampler=sampler)
    except KeyError:
        return None


def create(
    storage: str, name: str, direction: Direction, sampler: BaseSampler | None = None
) -> optuna.Study:
    """The study of that name, made if it is not there."""
    file = _file(storage)
    if file is not None and not file.absolute().parent.is_dir():
        raise StorageRefused(
            f"the folder {file.absolute().parent} of {shown(storage)} does not exist: make it first"
        )
    try:
        return optuna.create_study(
            study_name=name,
            storage=_opened(storage),
            direction=direction,
            sampler=sampler,
            load_if_exists=True,
        )
    except (OptunaError, SQLAlchemyError) as error:
        problem = f"study {name!r} cannot be made in {shown(storage)}: {reason(error)}"
        raise StorageRefused(problem) from None


def _url(storage: str) -> URL:
    try:
        url = make_url(storage)
    except ArgumentError:
        raise StorageRefused(
            f"the storage is {storage!r}, expected an address such as sqlite:///site.db for the "
            "file site.db in this folder"
        ) from None
    if url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:"):
        raise StorageRefused(
            f"the storage is {storage!r}, which is gone when the process ends: name a file, such "
            "as sqlite:///site.db"
        )
    return url


def _file(storage: str) -> Path | None:
    """SQLite's file, or None of another database."""
    url = _url(storage)
    is_file = url.get_backend_name() == "sqlite" and not str(url.database).startswith("file:")
    return Path(str(url.database)) if is_file else None


def _is_made(storage: str) -> bool:
    """Whether Optuna has made its tables there; also where that cannot be told."""
    url, file = _url(storage), _file(storage)
    if file is not None and not file.exists():
        return False
    try:
        engine = create_engine(url)
    except (ImportError, SQLAlchemyError):
        return True  # to open it says what is wrong
    try:
        return inspect(engine).has_table("studies")
    except SQLAlchemyError:
        return True
    finally:
        engine.dispose()


def _opened(storage: str) -> RDBStorage:
    """The storage, with heartbeats, and patience for other processes.

    Several that set up a new database at once hinder one another: all but one of them see tables
    that are there already, and try again.
    """
    sqlite = _url(storage).get_backend_name() == "sqlite"
    options = {"connect_args": {"timeout": _LOCKED}} if sqlite else {}
    for pause in _PAUSES:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ExperimentalWarning)
                return RDBStorage(storage, options, heartbeat_interval=_BEAT, grace_period=_GRACE)
        except (ImportError, RuntimeError, SQLAlchemyError) as error:
            problem: Exception = error
        if not _maybe_half_made(problem):
            break
        time.sleep(pause)
    raise StorageRefused(f"{shown(storage)} cannot be opened: {reason(problem)}")


def _maybe_half_made(error: Exception) -> bool:
    signs = ("already exists", "unique", "duplicate", "no such table", "locked", "schema")
    return any(sign in str(error).lower() for sign in signs)


def reason(error: Exception) -> str:
    """What the database says, without SQL and without links."""
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    cause = getattr(cause, "orig", None) or cause
    return str(cause).strip().splitlines()[0] if str(cause).strip() else type(cause).__name__


def _names(storage: str) -> str:
    file = _file(storage)
    if file is not None and not file.exists():
        return f": there is no file {file}"
    names = optuna.get_all_study_names(_opened(storage)) if _is_made(storage) else []
    return f"; its studies are {', '.join(map(repr, names))}" if names else "; it has no study"
