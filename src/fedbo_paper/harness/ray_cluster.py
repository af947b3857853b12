"""A cluster of Ray, or Ray on this machine alone."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import partial
from typing import Any

# Ray reads these when it is imported or started.
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # nothing is reported to its makers
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # or it warns of a change

import ray
from ray.exceptions import (
    NodeDiedError,
    OutOfMemoryError,
    RayError,
    RayTaskError,
    WorkerCrashedError,
)
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fedbo_paper.harness.cluster import PATIENCE, Cluster, T, probe, within
from fedbo_paper.harness.workers import WorkersFailed

_SECONDS = 30  # that a cluster may take to answer
_STORE = 100_000_000  # bytes for Ray's objects on this machine: ours are small


class RayCluster(Cluster):
    """A connection to Ray.

    Args:
        scheduler: "auto", ``host:port`` or ``ray://host:port``. None starts Ray on this machine.

    Raises:
        WorkersFailed: It cannot be reached.
    """

    deaths = (WorkerCrashedError, NodeDiedError, OutOfMemoryError)

    def __init__(self, scheduler: str | None) -> None:
        super().__init__(f"The Ray cluster at {scheduler}" if scheduler else "Ray on this machine")
        quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
        try:
            if scheduler is None:
                ray.init("local", include_dashboard=False, object_store_memory=_STORE, **quiet)
            else:
                if scheduler != "auto":
                    host, _, port = scheduler.removeprefix("ray://").rpartition(":")
                    probe(host, int(port))
                within(_SECONDS, partial(ray.init, scheduler, **quiet))
        except (OSError, ValueError, RuntimeError, ImportError, RayError) as error:
            raise WorkersFailed(
                f"{self.name} cannot be used ({error}). Expected as --scheduler auto, host:port or "
                "ray://host:port, as `ray start --head` prints it: check that it is running, and "
                "that no firewall is in between. Without --scheduler, Ray is started on this "
                "machine."
            ) from None
        self._run = ray.remote(_call)
        self._calls: set[Any] = set()

    def perform(self, call: Callable[[], T]) -> T:
        reference = self._run.remote(call)
        self._calls.add(reference)
        try:
            result: T = ray.get(reference)
            return result
        except RayTaskError as error:
            raise error.cause from None
        finally:
            self._calls.discard(reference)

    def cancel(self) -> None:
        for reference in [*self._calls]:
            ray.cancel(reference, force=True)

    def workers(self) -> int:
        return sum(int(node["Resources"]["CPU"]) for node in self._nodes())

    def everywhere(self, call: Callable[[], T]) -> dict[str, T | BaseException]:
        answers: dict[str, T | BaseException] = {}
        calls = {
            f"{node['NodeManagerHostname']} ({node['NodeID'][:8]})": self._run.options(
                scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            ).remote(call)
            for node in self._nodes()
        }
        for node, reference in calls.items():
            try:
                answers[node] = ray.get(reference, timeout=PATIENCE)
            except RayTaskError as error:
                answers[node] = error.cause
            except RayError as error:
                answers[node] = error
        return answers

    def disconnect(self) -> None:
        ray.shutdown()

    def _nodes(self) -> list[dict[str, Any]]:
        """The machines that are alive and have processors."""
        try:
            nodes = ray.nodes()
        except (RayError, OSError, RuntimeError):
            return []
        return [node for node in nodes if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]


def _call(call: Callable[[], T]) -> T:
    return call()
