"""Warnings point at the user's program, not at fedbo's files."""

from __future__ import annotations

import inspect
import sys
import threading
import warnings

import pytest

from fedbo import caller


def _library(body: str) -> dict[str, object]:
    """Functions that seem to be part of Optuna."""
    names: dict[str, object] = {"__name__": "optuna.study", "warn": caller.warn}
    exec(body, names)
    return names


def test_a_warning_points_at_the_first_line_outside_fedbo_and_optuna() -> None:
    optimize = _library("def optimize():\n    inner()\ndef inner():\n    warn('text')")["optimize"]
    assert callable(optimize)
    with pytest.warns(UserWarning, match="text") as caught:
        line = inspect.currentframe().f_lineno + 1  # type: ignore[union-attr]
        optimize()
    assert (caught[0].filename, caught[0].lineno) == (__file__, line)


def test_a_thread_that_has_no_line_of_the_program_points_at_the_program() -> None:
    for make in (caller.warn, _library("def run(text):\n    warn(text)")["run"]):
        with pytest.warns(UserWarning, match="text") as caught:
            thread = threading.Thread(target=make, args=("text",))
            thread.start()
            thread.join()
        assert (caught[0].filename, caught[0].lineno) == (sys.argv[0], 0)


def test_a_thread_collects_what_another_thread_gives() -> None:
    texts: list[str] = []

    def work() -> None:
        with caller.collect() as collected:
            caller.warn("inside")
        texts.extend(collected)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert texts == ["inside"]
    with caller.collect(), pytest.warns(UserWarning, match="elsewhere"):
        thread = threading.Thread(target=lambda: caller.warn("elsewhere"))
        thread.start()
        thread.join()
