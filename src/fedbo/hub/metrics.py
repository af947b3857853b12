"""What Prometheus can know of a hub. With several workers, their numbers are added up."""

from __future__ import annotations

import os
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from fedbo.hub.settings import METRICS_FOLDER

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_CHANGES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class Metrics:
    """The numbers of one worker."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        labels = ["route", "method"]
        self._requests = Counter(
            "fedbo_hub_requests",
            "Requests by route, method and status.",
            [*labels, "status"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "fedbo_hub_request_seconds",
            "How long requests took.",
            labels,
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._refused = Counter(
            "fedbo_hub_refused", "Requests refused, by problem.", ["problem"],
            registry=self._registry,
        )  # fmt: skip
        self._received = Counter(
            "fedbo_hub_received_bytes", "Bytes in the bodies of requests.", registry=self._registry
        )
        self._sent = Counter(
            "fedbo_hub_sent_bytes", "Bytes in the bodies of answers.", registry=self._registry
        )
        self._published = Counter(
            "fedbo_hub_messages_published", "Messages taken.", registry=self._registry
        )
        self._batches = Histogram(
            "fedbo_hub_commit_changes",
            "Changes in one commit.",
            buckets=_CHANGES,
            registry=self._registry,
        )
        self._children: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def request(
        self, route: str, method: str, status: int, seconds: float, received: int, sent: int
    ) -> None:
        """Count a request.

        Args:
            route: The template of its path, never the path.
            method: Its method.
            status: The status of the answer.
            seconds: How long it took.
            received: Bytes of its body.
            sent: Bytes of the answer's body.
        """
        key = route, method, status
        if (found := self._children.get(key)) is None:
            found = self._requests.labels(*key), self._seconds.labels(route, method)
            self._children[key] = found
        count, duration = found
        count.inc()
        duration.observe(seconds)
        if received:
            self._received.inc(received)
        if sent:
            self._sent.inc(sent)

    def refused(self, problem: str) -> None:
        """Count a request that was refused for this problem."""
        self._refused.labels(problem).inc()

    def published(self) -> None:
        """Count a message that was taken."""
        self._published.inc()

    def committed(self, changes: int) -> None:
        """Count a commit of so many changes."""
        self._batches.observe(changes)

    def render(self, federations: int, members: int, releases: int) -> bytes:
        """Return all numbers as Prometheus reads them.

        Args:
            federations: How many federations there are.
            members: How many members they have.
            releases: How many private releases were made.
        """
        shown = self._registry
        if os.environ.get(METRICS_FOLDER):
            shown = CollectorRegistry()
            MultiProcessCollector(shown)  # type: ignore[no-untyped-call]
        now = CollectorRegistry()
        now.register(_Now(federations=federations, members=members, releases=releases))
        return generate_latest(shown) + generate_latest(now)


class _Now(Collector):
    """What the database says."""

    def __init__(self, **counts: int) -> None:
        self._counts = counts

    def collect(self) -> Iterator[Metric]:
        for name, count in self._counts.items():
            yield GaugeMetricFamily(f"fedbo_hub_{name}", f"How many {name} there are.", count)
