"""BLAS on one thread, and the caller's number of threads afterwards."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

from fedbo.model.kernel import one_thread


def threads() -> set[int]:
    return {
        library["num_threads"]
        for library in ThreadpoolController().info()
        if library["user_api"] == "blas"
    }


@pytest.fixture(autouse=True)
def _three_threads() -> Iterator[None]:
    with ThreadpoolController().limit(limits=3, user_api="blas"):
        if threads() != {3}:
            pytest.skip(f"BLAS here has {threads()} threads, whatever it is told")
    # The setting is that of the program, and no context's.
    before = ThreadpoolController().limit(limits=3, user_api="blas")
    yield
    before.restore_original_limits()


def test_the_setting_is_restored_also_when_contexts_are_nested() -> None:
    with one_thread():
        assert threads() == {1}
        with one_thread():
            assert threads() == {1}
    assert threads() == {3}


@pytest.mark.parametrize("is_first_out", [True, False])
def test_the_setting_is_restored_whichever_of_two_threads_is_done_first(is_first_out: bool) -> None:
    """The second thread took the limit of the first for the setting, and kept it for ever."""
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with one_thread():
            entered.set()
            assert leave.wait(60.0)

    second = threading.Thread(target=other)
    context = one_thread()
    context.__enter__()
    second.start()
    assert entered.wait(60.0)
    if is_first_out:
        context.__exit__(None, None, None)
    leave.set()
    second.join()
    if not is_first_out:
        context.__exit__(None, None, None)
    assert threads() == {3}
