"""The form of a metric's description."""

from enum import Enum
from typing import Literal

from msgspec import Struct


class MetricKind(Enum):
    """The kinds of metrics."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"


class MetricLabel(Struct, frozen=True):
    """A label of a metric, and its values in words."""

    name: str
    values: str = ""


class MetricDescription(Struct, frozen=True, kw_only=True):
    """A metric.

    - `name`: as it is shown, by the conventions of Prometheus: a counter ends in `_total`.
    - `unit`: as OTLP names it, in the code of UCUM.
    - `help`: one sentence, for the metrics themselves.
    - `note`: more for the reference page, in Markdown.
    - `over_workers`: how the values of several workers become one.
    """

    name: str
    kind: MetricKind
    unit: str
    help: str
    labels: tuple[MetricLabel, ...] = ()
    note: str = ""
    over_workers: Literal["sum", "min", "max"] = "sum"

    @property
    def label_names(self) -> tuple[str, ...]:
        """The names of its labels, in their order."""
        return tuple(each.name for each in self.labels)
