"""Room in the streams, and which receivers get it."""

import asyncio

from streams.nats.answers import Refused
from streams.nats.jetstream import JetStream
from streams.nats.wire import Message
from tests.sim.plan import Plan
from tests.sim.stage import Deal, R, Stage, staged

HEALTHY = "acme.r1"
EVENTS = 40


def stream_is_full_of_rejected_events() -> None:
    """One receiver takes nothing and fills the stream; the other one's producers go on all the same."""
    plan = Plan(receivers=(R, HEALTHY), snapshot_every_s=1.0, maintenance_every_s=1.0, room=4 << 10)
    with staged(plan) as stage:
        stage.put(paused=True)
        stage.put(HEALTHY)
        stage.node()
        stage.do(lambda js: _publish(js, stage, R))
        stage.do(lambda js: _publish(js, stage, HEALTHY))
        stage.put()
        stage.settle()


def stream_is_full_while_a_refused_event_is_not_buried() -> None:
    """An event came before its receiver was put: its dead letter waits while settled messages go."""
    plan = Plan(receivers=(R, HEALTHY), snapshot_every_s=1.0, maintenance_every_s=1.0, room=4 << 10)
    with staged(plan) as stage:
        stage.put(paused=True)
        stage.node()
        stage.owner()
        letters = stage.run.names.dead(HEALTHY)

        def judge(message: Message, deal: Deal) -> None:
            if message.subject != letters:
                deal()

        stage.gate(judge)
        stage.publish("early", receiver=HEALTHY)
        stage.until(lambda: bool(stage.checkers.journal_of(HEALTHY).numbering(HEALTHY).refused))
        stage.put(HEALTHY)
        stage.do(lambda js: _publish(js, stage, R))
        stage.do(lambda js: _publish(js, stage, HEALTHY))
        stage.gate(lambda _, deal: deal())
        stage.put()
        stage.settle()


async def _publish(js: JetStream, stage: Stage, receiver: str) -> None:
    """Publishes like a patient producer that is refused."""
    for number in range(EVENTS):
        headers = {"Angarium-Id": f"{receiver}-{number}"}
        subject = stage.run.names.publish_to(receiver)
        while isinstance(await js.publish(subject, b"{}", headers), Refused):  # noqa: ASYNC110
            await asyncio.sleep(0.5)
