"""The metrics of several workers as those of one process.

What is counted is added, and never falls: a worker that has ended, or does not answer, keeps what it was last
seen to have counted. Otherwise Prometheus would take the fall for a restart, and count the work of all other
workers once more. What is measured now is added up over the workers that answer now, except where a sum would
mean something else (`NOT_ADDED`).
"""

from collections.abc import Callable, Iterator
from operator import add

from msgspec import Struct
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from angarium.telemetry.metrics.table import METRICS

COUNTED = frozenset({"counter", "histogram"})
Combine = Callable[[float, float], float]
_COMBINES: dict[str, Combine] = {"sum": add, "min": min, "max": max}
NOT_ADDED: dict[str, Combine] = {
    **{each.name: _COMBINES[each.over_workers] for each in METRICS},
    "process_start_time_seconds": min,
    "process_open_fds": max,
    "process_max_fds": min,
}
"""Gauges that are not added: those that the table names; when the first process started; and the process that
is nearest to its own limit of open files."""

SampleKey = tuple[str, tuple[tuple[str, str], ...]]
"""The name of a sample, and its labels."""
Samples = dict[SampleKey, float]


class Family(Struct):
    """A metric and its samples."""

    kind: str
    text: str
    samples: Samples


Families = dict[str, Family]


def read(page: bytes) -> Families:
    """The metrics of a page in the text format of Prometheus."""
    return {
        each.name: Family(
            each.type,
            each.documentation,
            {(sample.name, tuple(sample.labels.items())): sample.value for sample in each.samples},
        )
        for each in text_string_to_metric_families(page.decode())
    }


def counted(families: Families) -> Families:
    """The metrics that never fall while a process lives."""
    return {name: each for name, each in families.items() if each.kind in COUNTED}


def join(total: Families, more: Families) -> None:
    """Put more metrics into a total."""
    for name, each in more.items():
        found = total.setdefault(name, Family(each.kind, each.text, {})).samples
        combine: Combine = NOT_ADDED.get(name, add)
        for key, value in each.samples.items():
            found[key] = combine(found[key], value) if key in found else value


class WorkerCounts:
    """The metrics of one worker: of the process that was seen last, and of those before it."""

    def __init__(self) -> None:
        self.before: Families = {}
        self.latest: Families = {}
        self._start_number = 0

    def take(self, start_number: int, families: Families) -> None:
        """Take the metrics of its process; `start_number` differs for each process.

        What a process has counted stays, even if its page no longer names the tenant.
        """
        if start_number != self._start_number:
            join(self.before, counted(self.latest))
            self._start_number = start_number
        else:
            for name, each in counted(self.latest).items():
                now = families.setdefault(name, Family(each.kind, each.text, {}))
                now.samples = each.samples | now.samples
        self.latest = families


class Sum(Collector):
    """The total, in the form that `prometheus_client` renders."""

    def __init__(self, total: Families) -> None:
        self._total = total

    def collect(self) -> Iterator[Metric]:
        """All metrics, in the order of a worker's page."""
        for name, each in self._total.items():
            metric = Metric(name, each.text, each.kind)
            metric.samples = [
                Sample(sample, dict(labels), value) for (sample, labels), value in each.samples.items()
            ]
            yield metric
