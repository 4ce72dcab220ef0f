"""The reference page of the metrics, `docs/metrics.md`, made of the table.

`python -m angarium.telemetry.metrics.reference_page >docs/metrics.md` writes it again; a test compares both.
"""

from collections.abc import Sequence

from angarium.telemetry.metrics.description import MetricDescription, MetricKind
from angarium.telemetry.metrics.table import API, LEDGER, NODE, WORKERS

_UNITS = {"s": "seconds", "By": "bytes", "1": ""}

_HEAD = """\
# Metrics

All metrics, as `/metrics` shows them, and as [OTLP](operating.md#metrics-by-otlp) sends them. Where they are
served, and which of them to page on, is in [operating](operating.md#watching).

This page is made from the code, `angarium/telemetry/metrics/table.py`.

- Counters start at zero with each process.
- A histogram has `_bucket`, `_sum` and `_count`.
- Metrics with the label `receiver` or `tenant` name the largest of each node, as many as the setting
  `metrics_names` says; that is 0 by default. `_other` stands for all that are not named.
"""

_SECTIONS: tuple[tuple[str, str, Sequence[MetricDescription]], ...] = (
    ("Nodes", "Each node has these:", NODE),
    (
        "Workers",
        "The supervisor of [workers](operating.md#metrics-of-workers) has their sums, and in addition:",
        WORKERS,
    ),
    (
        "HTTP API",
        "Each process of `angarium api` has these, and `angarium_nats_connected`:",
        API,
    ),
    (
        "Ledger",
        "Each process of `angarium ledger` has these, and `angarium_nats_connected`:",
        LEDGER,
    ),
)

_PROCESS = """
## Processes

Metrics of the process (`process_cpu_seconds_total`, `process_resident_memory_bytes`, `process_open_fds`, …)
are available if it may read `/proc/stat` (`ProcSubset=pid` in our systemd unit hides it).
"""


def reference_page() -> str:
    """The whole page."""
    sections = "".join(_section(*each) for each in _SECTIONS)
    return f"{_HEAD}{sections}{_PROCESS}"


def _section(title: str, sentence: str, metrics: Sequence[MetricDescription]) -> str:
    rows = "\n".join(map(_row, metrics))
    return (
        f"\n## {title}\n\n{sentence}\n\n| metric | kind | unit | labels | what it shows |\n"
        f"| --- | --- | --- | --- | --- |\n{rows}\n"
    )


def _row(metric: MetricDescription) -> str:
    labels = "; ".join(f"`{each.name}`" + f": {each.values}" * bool(each.values) for each in metric.labels)
    unit = _UNITS.get(metric.unit) if metric.unit in _UNITS else metric.unit.strip("{}") + "s"
    kind = "gauge" if metric.kind is MetricKind.INFO else metric.kind.value
    shows = f"{metric.help} {metric.note}".strip().removesuffix(".")
    return f"| `{metric.name}` | {kind} | {unit} | {labels} | {shows} |"


if __name__ == "__main__":
    print(reference_page(), end="")
