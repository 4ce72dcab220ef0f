"""Streams that lose unsynced messages in a power failure, and are filled again at once."""

from functools import partial

from streams.nats.jetstream import JetStream
from streams.nats.retry import stream_info
from streams.nats.wire import Message
from streams.reading import pull
from streams.repair.damage import find_damage
from streams.storage.purge import purge_deliveries, purge_events
from tests.sim.checks.lost_tail import AfterLostTail
from tests.sim.plan import Plan
from tests.sim.stage import Deal, Stage, old, staged
from tests.sim.world.receivers import Manner

BEFORE, KEPT = 60, 25
CHECKPOINT_S = 12.0
"""After so long a checkpoint says what was delivered."""
EVER = 4e9
"""An instant that lies in the future."""
AGAIN_S = 40.0
"""Longer than a node waits before it tries a refused shard again."""


def lose(stage: Stage, stream: str, *, node_dies: bool, purged: bool = False) -> AfterLostTail:
    """All of `BEFORE` are delivered; then the stream loses its tail, and gets as many and more at once."""
    stage.put()
    first = stage.node()
    stage.owner()
    publish = stage.announce if stream == stage.run.names.events else stage.publish
    publish(*old(BEFORE))
    stage.until(lambda: len(stage.delivered()) == BEFORE)
    stage.wait(CHECKPOINT_S if purged else 3.0)
    if node_dies:
        first.kill()
        stage.wait(0.1)
    after = AfterLostTail(stage)
    stage.run.network.restart_server(0.5)
    after.lose_tail(stream, KEPT)
    stage.wait(0.5)
    publish(*[f"new{number}" for number in range(BEFORE)])
    if purged:
        stage.do(partial(_purge, stage))
    if node_dies:
        stage.node()
    stage.wait(AGAIN_S)
    return after


def _deliveries_lose_their_tail(*, node_dies: bool) -> None:
    with staged(Plan(ttl_s=2.0)) as stage:
        after = lose(stage, stage.run.names.deliveries, node_dies=node_dies)
        after.expect_refused(stage.run.names.deliveries)


def _events_lose_their_tail(*, node_dies: bool) -> None:
    with staged(Plan(ttl_s=2.0)) as stage:
        after = lose(stage, stage.run.names.events, node_dies=node_dies)
        after.expect_refused(stage.run.names.events)


def deliveries_lose_their_tail_under_a_node() -> None:
    """The server comes back without its last messages, and is filled again before the node has read on."""
    _deliveries_lose_their_tail(node_dies=False)


def deliveries_lose_their_tail_between_nodes() -> None:
    """The node dies with the server; the next one finds a stream that is longer than the old one was."""
    _deliveries_lose_their_tail(node_dies=True)


def events_lose_their_tail_under_a_node() -> None:
    _events_lose_their_tail(node_dies=False)


def events_lose_their_tail_between_nodes() -> None:
    _events_lose_their_tail(node_dies=True)


def events_lose_their_tail_at_once() -> None:
    """Events of no receiver of this shard, so that no fact of it says that they were routed."""
    with staged(Plan(ttl_s=2.0)) as stage:
        stage.put(events=[])
        first = stage.node()
        stage.owner()
        stage.announce(*old(BEFORE))
        stage.wait(1.5)
        first.kill()
        after = AfterLostTail(stage)
        after.lose_tail(stage.run.names.events, KEPT)
        stage.announce(*[f"new{number}" for number in range(BEFORE)])
        stage.node()
        stage.wait(AGAIN_S)
        after.expect_refused(stage.run.names.events)


def the_right_stream_is_brought_back() -> None:
    """A wrong backup is restored, and then the right one: no operator has to say anything."""
    with staged(Plan(ttl_s=2.0)) as stage:
        stage.put()
        stage.node()
        stage.owner()
        stage.publish(*old(BEFORE))
        stage.until(lambda: len(stage.delivered()) == BEFORE)
        after = AfterLostTail(stage)
        deliveries = stage.run.names.deliveries
        stage.run.network.restart_server(0.5)
        messages = after.lose_tail(deliveries, KEPT)
        stage.wait(AGAIN_S)
        after.expect_refused(deliveries)
        after.bring_back(deliveries, messages)
        stage.wait(AGAIN_S)
        stage.expect(after.owned and not after.refused, f"still refused: {after.refused}")
        stage.publish("new")
        stage.wait(5.0)
        stage.expect([each.id for each in after.posts] == ["new"], f"posted: {after.posts}")


def a_message_is_deleted_by_hand() -> None:
    """The last message is deleted, and its place is taken by none: that is no loss of a tail."""
    with staged(Plan(ttl_s=2.0)) as stage:
        stage.put()
        first = stage.node()
        stage.owner()
        stage.publish(*old(3))
        stage.until(lambda: len(stage.delivered()) == 3)
        stage.do(partial(_delete, stage.run.names.deliveries, 3))
        first.kill()
        stage.node()
        stage.owner()
        stage.publish("new")
        stage.settle()


def _purged(stream: str) -> None:
    """The owner of shard 0 purges, before any process compared the stream, and after it was refused."""
    with staged(Plan(ttl_s=2.0)) as stage:
        stage.put()
        name = getattr(stage.run.names, stream)
        after = lose(stage, name, node_dies=True, purged=True)
        after.expect_refused(name)
        stage.do(partial(_purge, stage))
        stage.wait(AGAIN_S)
        first = stage.run.server.streams[name].store.first
        stage.expect(first <= KEPT + 1, f"new events were purged, the first is {first}")
        after.expect_refused(name)


def deliveries_are_purged_without_their_tail() -> None:
    """The checkpoint says that they were delivered, and means others."""
    _purged("deliveries")


def events_are_purged_without_their_tail() -> None:
    """The journal says that they were routed, and means others."""
    _purged("events")


async def _purge(stage: Stage, js: JetStream) -> None:
    names = stage.run.names
    for stream, purge in ((names.deliveries, purge_deliveries), (names.events, purge_events)):
        info = await stream_info(js, stream)
        await purge(js, names, 1, info, EVER, info.last)


def the_place_of_a_lost_message_is_purged() -> None:
    """By age, say, or by hand: it does not make the stream the right one."""
    with staged(Plan(ttl_s=2.0)) as stage:
        deliveries = stage.run.names.deliveries
        after = lose(stage, deliveries, node_dies=True)
        after.expect_refused(deliveries)
        stage.do(partial(_purge_place, deliveries))
        stage.wait(AGAIN_S)
        after.expect_refused(deliveries)
        stage.do(partial(_find_missing, stage))
        stage.expect(after.repair(), "the repair did not end")
        stage.node()
        stage.wait(AGAIN_S)
        stage.expect(after.owned and not after.refused, f"still refused: {after.refused}")


async def _purge_place(stream: str, js: JetStream) -> None:
    await js.purge(stream, BEFORE + 1)


async def _find_missing(stage: Stage, js: JetStream) -> None:
    damage = await find_damage(js, stage.run.names, 0)
    stage.expect(damage.missing and not damage.is_empty, f"nothing to repair: {damage}")


async def _delete(stream: str, position: int, js: JetStream) -> None:
    await js.delete(stream, position)


def the_new_tail_is_read_before_any_node_compares() -> None:
    """A parked receiver may go on just when the server is back; what is recorded then is of the new tail."""
    with staged(Plan(ttl_s=2.0)) as stage:
        deliveries = stage.run.names.deliveries
        stage.put(paused=True)
        first = stage.node()
        stage.owner()
        stage.publish(*old(BEFORE))
        stage.wait(8.0)
        after = AfterLostTail(stage)
        stage.run.network.restart_server(0.5)
        after.lose_tail(deliveries, KEPT)
        stage.wait(0.4)
        stage.gate(lambda message, deal: None if message.subject.endswith(f"INFO.{deliveries}") else deal())
        stage.put()
        stage.publish(*[f"new{number}" for number in range(BEFORE)])
        stage.until(lambda: any(b'"new' in each for each in after.recorded))
        first.kill()
        stage.gate(lambda message, deal: deal())
        stage.node()
        stage.wait(AGAIN_S)
        after.expect_refused(deliveries)


def a_read_outside_the_inbox_is_lost() -> None:
    """A parked receiver has read further than the inbox, and this is on no record when the server dies."""
    with staged(Plan(ttl_s=2.0)) as stage:
        deliveries = stage.run.names.deliveries
        stage.put(paused=True)
        stage.node()
        stage.owner()
        stage.publish(*old(20))
        stage.wait(8.0)
        after = AfterLostTail(stage)
        asks = f"CONSUMER.MSG.NEXT.{deliveries}."
        stage.gate(lambda message, deal: None if asks in message.subject else deal())
        stage.wait(pull.REQUEST_EXPIRES_S + 4.0)
        stage.publish(*[f"late{number}" for number in range(20)])
        stage.receiver_is(Manner.HANGS)
        stage.put(timeout_s=1)
        stage.until(lambda: bool(after.posts))
        stage.run.network.restart_server(0.5)
        after.lose_tail(deliveries, KEPT)
        stage.gate(lambda message, deal: deal())
        stage.wait(0.5)
        stage.publish(*[f"new{number}" for number in range(BEFORE)])
        stage.receivers_are_good()
        stage.wait(AGAIN_S)
        after.expect_refused(deliveries)


def a_flush_known_to_memory_alone_is_lost() -> None:
    """A flush is in flight when the server dies, longer than the lease: memory knows more than the record.

    A node that continues from memory has read messages that are no longer there.
    """
    with staged(Plan(ttl_s=2.0)) as stage:
        names = stage.run.names
        stage.put()
        stage.node()
        stage.owner()
        stage.publish(*old(20))
        stage.until(lambda: len(stage.delivered()) == 20)
        stage.wait(3.0)
        after = AfterLostTail(stage)

        def judge(message: Message, deal: Deal) -> None:
            if ".journal." not in message.subject or b'"claimed"' in message.data:
                deal()

        stage.gate(judge)
        stage.publish(*[f"late{number}" for number in range(20)])
        stage.until(lambda: len(after.posts) == 20)
        stage.run.network.restart_server(3.0)
        after.lose_tail(names.deliveries, KEPT)
        stage.gate(
            lambda message, deal: (
                judge(message, deal) if message.subject != names.actor_keys.owner(0) else None
            )
        )
        stage.wait(3.0)
        stage.publish(*[f"new{number}" for number in range(BEFORE)])
        stage.gate(judge)
        stage.wait(4.0)
        stage.gate(lambda message, deal: deal())
        stage.wait(AGAIN_S)
        after.expect_refused(names.deliveries)
