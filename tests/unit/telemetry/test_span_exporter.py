"""A slow or refusing collector costs a bounded queue, and every span that it does not get is counted."""

import threading
from collections.abc import Sequence

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from angarium.telemetry import span_exporter
from angarium.telemetry.open_tracing import Tracing, exporting_spans
from angarium.telemetry.span_exporter import BATCH_MAX, QueuedExporter
from angarium.telemetry.trace_ids import always
from angarium.telemetry.tracer import Tracer
from tests.support.otlp_collector import span


class SlowCollector(SpanExporter):
    """Answers each request once it may; refuses if `refuses`."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.refuses = refuses
        self.asked, self.may_answer = threading.Event(), threading.Event()
        self.got: list[ReadableSpan] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.asked.set()
        self.may_answer.wait(30)
        self.got += spans
        return SpanExportResult.FAILURE if self.refuses else SpanExportResult.SUCCESS


def test_a_slow_collector_costs_a_limited_queue(caplog: pytest.LogCaptureFixture) -> None:
    slow = SlowCollector()
    exporter = QueuedExporter(slow, Resource({}), queue_max=10, delay_s=0.01)
    exporter.take(span)
    assert slow.asked.wait(30)
    for _ in range(25):
        exporter.take(span)
    assert exporter.dropped == 15
    assert caplog.messages == ["traces.queue_full"]
    slow.may_answer.set()
    exporter.stop()
    assert (exporter.exported, exporter.dropped, len(slow.got)) == (11, 15, 11)
    got = slow.got[0]
    assert (got.start_time, got.end_time, got.status.is_ok) == (1_500_000_000, 2_000_000_000, False)
    assert got.context is not None
    assert got.parent is not None
    assert (got.context.trace_id, got.context.span_id, got.parent.span_id) == (1, 2, 3)
    assert [(each.context.trace_id, each.context.span_id) for each in got.links] == [(4, 5)]


def test_spans_that_a_collector_refuses_are_counted() -> None:
    refusing = SlowCollector(refuses=True)
    refusing.may_answer.set()
    exporter = QueuedExporter(refusing, Resource({}), queue_max=10, delay_s=60.0)
    exporter.take(span)
    exporter.stop()
    assert (exporter.exported, exporter.dropped) == (0, 1)


@pytest.mark.parametrize(("queue_max", "sent"), [(10, 10), (BATCH_MAX * 4, BATCH_MAX)])
def test_a_full_queue_or_batch_is_sent_at_once(queue_max: int, sent: int) -> None:
    quick = SlowCollector()
    quick.may_answer.set()
    exporter = QueuedExporter(quick, Resource({}), queue_max=queue_max, delay_s=3600.0)
    for _ in range(sent - 1):
        exporter.take(span)
    assert not quick.asked.wait(0.05)
    exporter.take(span)
    assert quick.asked.wait(30)
    exporter.stop()
    assert (exporter.exported, exporter.dropped) == (sent, 0)


def test_a_collector_that_hangs_holds_up_the_end_for_a_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(span_exporter, "STOP_MAX_S", 0.01)
    hanging = SlowCollector()
    exporter = QueuedExporter(hanging, Resource({}), queue_max=10, delay_s=0.01)
    exporter.take(span)
    assert hanging.asked.wait(30)
    exporter.stop()
    assert not hanging.got
    assert {each.daemon for each in threading.enumerate() if each.name == "traces"} == {True}
    hanging.may_answer.set()


class BrokenOnce(SlowCollector):
    """Has a defect at the first batch."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if not self.asked.is_set():
            self.asked.set()
            raise RuntimeError("a defect")
        return super().export(spans)


def test_a_defect_of_an_exporter_costs_one_batch(caplog: pytest.LogCaptureFixture) -> None:
    broken = BrokenOnce()
    broken.may_answer.set()
    exporter = QueuedExporter(broken, Resource({}), queue_max=1, delay_s=3600.0)
    exporter.take(span)
    assert broken.asked.wait(30)
    exporter.take(span)
    exporter.stop()
    assert (exporter.exported, exporter.dropped) == (1, 1)
    assert caplog.messages == ["traces.broken", "traces.dropped"]


async def test_the_end_waits_until_the_last_spans_are_sent() -> None:
    slow = SlowCollector()
    exporter = QueuedExporter(slow, Resource({}), queue_max=10, delay_s=3600.0)
    answering = threading.Timer(0.05, slow.may_answer.set)
    async with exporting_spans(Tracing(Tracer(always, exporter.take), exporter)):
        exporter.take(span)
        answering.start()
    assert (exporter.exported, exporter.dropped) == (1, 0)
