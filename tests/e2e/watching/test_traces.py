"""A node exports traces to a collector, with the span ids that receivers got, over a kill -9, too."""

from collections.abc import Iterator

import pytest

from streams.installation.topology import Names
from tests.support.fleet.fleet import Fleet
from tests.support.fleet.sink import Reply
from tests.support.otlp_collector import Collector
from tests.support.secrecy import secrets_in

names = Names()
RECEIVER = "t.traced"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    collector = Collector()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    yield collector
    collector.stop()


async def test_a_takeover_continues_the_trace_of_the_producer(fleet: Fleet, collector: Collector) -> None:
    fleet.sink.manners[RECEIVER] = lambda _: Reply(status=500)
    await fleet.configure([RECEIVER], retry={"base_s": 0.05, "cap_s": 0.5})
    node = await fleet.start_ready()
    await fleet.js.publish(names.publish_to(RECEIVER), b"{}", {"traceparent": PARENT})
    await fleet.until(lambda: bool(collector.headers("POST")), "a failed attempt was exported")
    await node.kill()
    fleet.sink.manners[RECEIVER] = lambda _: Reply(status=204)
    await fleet.start_ready()
    await fleet.until(lambda: bool(collector.headers(f"deliver {RECEIVER}")), "the delivery was exported")
    exported = collector.headers("POST")
    last = fleet.sink.latest[RECEIVER].headers["traceparent"]
    assert exported[-1] == last
    assert len(set(exported)) == len(exported)
    (deliver,) = [each for each in collector.spans if each.name != "POST"]
    assert deliver.parent_span_id.hex() == PARENT.split("-")[2]
    assert {each.trace_id.hex() for each in collector.spans} == {PARENT.split("-")[1]}
    assert {each.parent_span_id for each in collector.spans if each.name == "POST"} == {deliver.span_id}
    assert not secrets_in(str(collector.spans))
