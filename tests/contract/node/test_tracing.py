"""A node knows the traces of events only while it owns the shards of their receivers."""

from unittest.mock import Mock

from actors.machine.outcome import Answered, Outcome
from actors.ports import Attempt, BatchAttempt
from angarium.node.app import joined_node
from angarium.telemetry.open_tracing import Tracing
from angarium.telemetry.trace_ids import always
from angarium.telemetry.tracer import Tracer
from streams.clock import SystemTime
from streams.nats.jetstream import JetStream
from streams.nats.wire import Wire
from tests.contract.support.shards import RECEIVER
from tests.support.installation import SHARDS, install, node_settings, publish
from tests.support.waiting import until


class AlwaysFails:
    """Answers 500 to each attempt, whose trace is noted as the HTTP sender does."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    async def send(self, attempt: Attempt | BatchAttempt) -> Outcome:
        self._tracer.traceparent(attempt)
        return Answered(status=500, latency_ms=1.0)


async def test_a_shard_that_ends_leaves_no_traces_of_its_events(
    wire: Wire, js: JetStream, prefix: str
) -> None:
    names, spans = await install(js, prefix), list[object]()

    def export(make: object) -> bool:
        spans.append(make)
        return True

    await js.publish(names.receiver(RECEIVER), b'{"url": "https://a.example", "retry": {"base_s": 3600}}')
    await publish(js, names, RECEIVER)
    tracer = Tracer(always, export)
    tracing = Tracing(tracer, Mock())
    sender = AlwaysFails(tracer)
    async with joined_node(wire, node_settings(names), SystemTime(), sender, tracing=tracing) as node:
        await until(lambda: len(node.owned) == SHARDS)
        await until(lambda: len(spans) == 1)
        assert tracer.known == 1
    assert tracer.known == 0
