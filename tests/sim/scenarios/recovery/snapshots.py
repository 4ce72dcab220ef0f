"""Delayed writes of snapshots, and what the next owner makes of the bucket."""

import asyncio

from streams.journal.load_slots import LOADS_MAX
from streams.nats.jetstream import JetStream
from streams.nats.wire import Message
from tests.sim.plan import Plan
from tests.sim.stage import Deal, R, Stage, staged

CROWD = 1000
SLOW_S = 0.2
MANY = tuple(f"acme.r{number}" for number in range(6))


def batch_arrives_after_the_next_write_began() -> None:
    """A write of snapshots is given up and stored all the same, just before the next one, of several batches.

    The node dies between two of these, when the journal was purged up to what the late write says.
    """
    plan = Plan(receivers=MANY, batch=3, maintenance_every_s=0.3)
    with staged(plan) as stage:
        for receiver in MANY:
            stage.put(receiver)
        node = stage.node()
        stage.owner()
        stage.publish("first")
        stage.wait(6.0)
        late = _give_up_a_write(stage)
        _let_arrive(stage, late)
        stored = 0

        def die_after_the_first(message: Message, deal: Deal) -> None:
            nonlocal stored
            if not node.alive or not _commits(message):
                deal()
                return
            deal()
            stored += message.subject.endswith("0._checkpoint")
            if stored == 2:  # The first is refused, since it expects what was in force before.
                node.kill()

        stage.gate(die_after_the_first)
        for receiver in MANY:
            stage.publish("then", receiver=receiver)
        stage.until(lambda: not node.alive)
        stage.node()
        stage.owner()
        stage.settle()


def a_thousand_parked_actors_come_back() -> None:
    """Each of their snapshots takes a while to be read. The node asks for a few at a time, and meanwhile goes
    on with others. It keeps its lease."""
    crowd = tuple(f"acme.p{number}" for number in range(CROWD))
    with staged(Plan(receivers=(R, *crowd), shards=2)) as stage:
        stage.do(lambda js: _park(js, stage, crowd))
        stage.put()
        first = stage.node()
        stage.owner()
        stage.wait(12.0)
        first.kill()
        under_way = most = 0

        def slow_down(message: Message, deal: Deal) -> None:
            nonlocal under_way, most
            if not (message.subject.endswith(stage.run.names.actors) and b"acme.p" in message.data):
                deal()
                return
            under_way += 1
            most = max(most, under_way)
            stage.world.after(SLOW_S, answer, deal)

        def answer(deal: Deal) -> None:
            nonlocal under_way
            under_way -= 1
            deal()

        stage.gate(slow_down)
        node = stage.checkers.nodes[stage.node().name]
        stage.until(lambda: len(node.owned) == 2)
        hosts = [shard.host for shard in node.owned.values()]
        for number in range(5):
            stage.publish(f"new{number}")
            stage.wait(0.5)
        stage.expect(len(stage.delivered()) == 5, "the parked ones kept another receiver waiting")
        stage.expect(
            sum(len(host.residents.not_loaded) for host in hosts) > CROWD // 4,
            "there was nothing to wait for",
        )
        stage.until(lambda: not any(host.residents.not_loaded for host in hosts))
        stage.expect([shard.host for shard in node.owned.values()] == hosts, "a shard was lost")
        stage.expect(most <= LOADS_MAX, f"{most} snapshots were read at a time")


async def _park(js: JetStream, stage: Stage, crowd: tuple[str, ...]) -> None:
    raw = b'{"url": "https://example.com/a", "paused": true}'
    for start in range(0, len(crowd), 100):
        some = crowd[start : start + 100]
        await asyncio.gather(*(js.publish(stage.run.names.receiver(each), raw) for each in some))
        await asyncio.gather(*(js.publish(stage.run.names.publish_to(each), b"{}") for each in some))


def _commits(message: Message) -> bool:
    return bool(message.headers and "Nats-Batch-Commit" in message.headers)


def _give_up_a_write(stage: Stage) -> list[Deal]:
    """The node gives up a write, which is still under way to the server."""
    under_way: list[Deal] = []

    def hold_up(message: Message, deal: Deal) -> None:
        if not _commits(message):
            deal()
        elif not under_way:
            under_way.append(deal)  # Its repeats are lost.

    stage.gate(hold_up)
    for number in range(6):
        stage.publish(f"old{number}")
        stage.wait(0.4)
    stage.until(lambda: bool(under_way))
    stage.wait(5.2)
    return under_way


def _let_arrive(stage: Stage, late: list[Deal]) -> None:
    stage.gate(lambda message, deal: deal())
    stage.publish("last")
    stage.wait(0.3)
    late.pop()()
    stage.wait(1.0)


def parked_actors_come_back_slowly() -> None:
    """A takeover reads the snapshots of parked actors one after the other, and meanwhile all others go on.

    What is settled of these may be purged, but nothing of what the parked ones wait for.
    """
    plan = Plan(receivers=MANY, snapshot_every_s=0.5, maintenance_every_s=0.5)
    with staged(plan) as stage:
        for receiver in MANY[1:]:
            stage.put(receiver, paused=True)
            stage.publish("old", receiver=receiver)
        stage.put()
        first = stage.node()
        stage.owner()
        stage.wait(4.0)
        first.kill()
        slow: list[Deal] = []

        def hold_up(message: Message, deal: Deal) -> None:
            asked = message.subject == f"$JS.API.STREAM.MSG.GET.{stage.run.names.actors}"
            if asked and b"acme.r" in message.data and R.encode() not in message.data:
                slow.append(deal)
            else:
                deal()

        stage.gate(hold_up)
        stage.node()
        stage.owner()
        for number in range(6):
            stage.publish(f"new{number}")
            stage.wait(1.0)
        stage.expect(len(stage.delivered()) == 6, "the parked ones kept another receiver waiting")
        stage.gate(lambda message, deal: deal())
        for receiver in MANY[1:]:
            stage.put(receiver)
        stage.settle()
