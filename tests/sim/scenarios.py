"""Precise interleavings: each is the one that a rule of the design was paid for with.

Seeds may take long to come across them. Each passes with the product as it is, and fails with the rule taken
out (`tests.sim.mutants` says which).
"""

from collections.abc import Callable

from streams.jetstream import JetStream
from streams.wire import Message
from tests.sim.plan import Plan
from tests.sim.process import Process
from tests.sim.stage import R, Stage, staged


def _kill(process: Process) -> None:
    process.kill()


def _old(count: int) -> list[str]:
    return [f"old{number}" for number in range(count)]


def zombie_with_a_renewed_lease() -> None:
    """A node sleeps through its lease while another owns its shard, and wakes with work in its memory."""
    with staged() as stage:
        stage.put(rate={"limit": 1, "burst": 1})
        stage.node()
        stage.node()
        first = stage.owner()
        stage.publish(*_old(12))
        stage.wait(2.3)
        starts = stage.checkers.starts
        first.freeze()
        stage.until(lambda: stage.checkers.starts > starts + 1)
        first.wake()
        stage.settle()


def late_snapshot_of_a_sleeper() -> None:
    """A node sleeps while its snapshots are on their way, which arrive after its successor's."""
    with staged(Plan(snapshot_every_s=1.0)) as stage:
        stage.put()
        stage.node()
        stage.node()
        first = stage.owner()
        held: list[Callable[[], None]] = []

        def judge(message: Message, deal: Callable[[], None]) -> None:
            is_snapshot = message.subject.startswith("$KV.angarium_actors.0.") and message.headers
            if is_snapshot and "Nats-Batch-Id" in (message.headers or {}) and first.alive and len(held) < 2:
                held.append(deal)
                first.freeze()
            else:
                deal()

        stage.publish("one")
        stage.gate(judge)
        stage.until(lambda: len(held) == 2)
        stage.publish("two", "three")
        stage.wait(8.0)
        for deal in held:
            deal()
        first.wake()
        stage.publish("four")
        stage.wait(3.0)
        stage.settle()


def handover_while_snapshots_are_written() -> None:
    """A write of snapshots takes long, and the handover that follows takes its own."""
    with staged(Plan(receivers=(R, "acme.r1"), snapshot_every_s=1.0)) as stage:
        stage.put()
        stage.put("acme.r1")
        stage.node()
        first = stage.owner()
        stage.wait(1.5)
        stage.publish("one")
        stage.wait(0.3)

        def judge(message: Message, deal: Callable[[], None]) -> None:
            if not (message.subject.startswith("$KV.angarium_actors.0.") and stage.world.now < opens_at):
                deal()

        opens_at = stage.world.now + 3.0
        stage.gate(judge)
        stage.wait(1.2)
        stage.publish("two", receiver="acme.r1")
        stage.wait(0.3)
        stage.stop(first)
        stage.node()
        stage.publish("three")
        stage.settle()


def burial_owed_at_a_takeover() -> None:
    """A node dies when a letter is owed and its checkpoint is past that; no event follows."""
    with staged(Plan(snapshot_every_s=0.5)) as stage:
        stage.put()
        stage.node()
        first = stage.owner()

        def judge(message: Message, deal: Callable[[], None]) -> None:
            if not (message.subject.startswith("angarium.dead.") and first.alive):
                deal()

        stage.gate(judge)

        async def publish(js: JetStream) -> None:
            await js.publish(stage.run.names.publish_to(R), b"{}", {"Angarium-Type": "angarium.mine"})

        stage.do(publish)
        stage.wait(2.0)
        first.kill()
        stage.node()
        stage.settle()


def window_shrinks_between_owners() -> None:
    """An owner passes over a repeat and posts the next event, and dies before that is recorded; the window
    is smaller when another takes over."""
    with staged() as stage:
        stage.put(dedup_window=64)
        stage.node()
        stage.publish(*_old(20))
        stage.settle()
        stage.at_start(21, _kill)
        stage.publish("old2", "new")
        stage.until(lambda: not stage.run.processes)
        stage.put(dedup_window=16)
        stage.node()
        stage.settle()


def _swallow(stage: Stage, tag: bytes, owner: Process) -> None:
    """Flushes with such a fact get lost as long as that owner lives."""

    def judge(message: Message, deal: Callable[[], None]) -> None:
        if not (".journal." in message.subject and tag in message.data and owner.alive):
            deal()

    stage.gate(judge)


def window_set_is_lost() -> None:
    """The window gets smaller, on no record; what comes after is judged by it, and the node dies."""
    with staged() as stage:
        stage.put(dedup_window=64)
        first = stage.node()
        stage.publish(*_old(20))
        stage.settle()
        _swallow(stage, b"window_set", first)
        stage.put(dedup_window=16)
        stage.wait(0.05)
        stage.at_start(21, lambda process: process.kill() if process is first else None)
        stage.publish("old2", "new")
        stage.wait(0.5)
        first.kill()
        stage.node()
        stage.settle()


def opening_is_lost() -> None:
    """A receiver is opened, on no record; the node dies, and its window is another one."""
    with staged() as stage:
        stage.put(dedup_window=16)
        first = stage.node()
        stage.owner()
        _swallow(stage, b"opened", first)
        stage.at_start(21, lambda process: process.kill() if process is first else None)
        stage.publish(*_old(20), "old2", "new")
        stage.wait(0.5)
        first.kill()
        stage.put(dedup_window=64)
        stage.node()
        stage.settle()


def ping_before_a_crash() -> None:
    """A ping takes a new receiver's only token, and the node dies."""
    with staged() as stage:
        stage.put(rate={"limit": 6, "per": "minute", "burst": 1})
        stage.node()
        stage.owner()
        stage.ask("resume")
        stage.at_start(1, _kill)
        stage.world.after(2.0, stage.run.start_node)
        stage.ask("ping")
        stage.settle()


def owner_key_is_deleted() -> None:
    """A node dies after a burst that is on no record, and somebody deletes `_owner`."""
    with staged() as stage:
        stage.put(rate={"limit": 12, "per": "minute", "burst": 5})
        stage.node()
        stage.owner()
        stage.publish("one")
        stage.settle()
        stage.wait(10.0)
        stage.put(rate={"limit": 12, "per": "minute", "burst": 4})
        stage.wait(1.0)
        stage.at_start(5, _kill)
        stage.publish(*_old(10))
        stage.until(lambda: not stage.run.processes)

        async def delete(js: JetStream) -> None:
            await js.publish(stage.run.names.owner(0), b"", {"KV-Operation": "DEL"})

        stage.do(delete)
        stage.node()
        stage.settle()


def first_heartbeat_slept_through() -> None:
    """A node is stopped before the answer to its first heartbeat is read, and wakes after its lease."""
    with staged() as stage:
        stage.put()
        process = stage.run.start_node()

        def judge(message: Message, deal: Callable[[], None]) -> None:
            deal()
            if message.subject.startswith("$KV.angarium_nodes.") and stage.world.now < 3:
                process.freeze()

        stage.gate(judge)
        stage.wait(5.0)
        process.wake()
        stage.publish("one")
        stage.settle()


ALL = (
    first_heartbeat_slept_through,
    zombie_with_a_renewed_lease, late_snapshot_of_a_sleeper, handover_while_snapshots_are_written,
    burial_owed_at_a_takeover, window_shrinks_between_owners, window_set_is_lost, opening_is_lost,
    ping_before_a_crash, owner_key_is_deleted,
)  # fmt: skip
