"""Ownership of a shard, and what a new owner must know of the last one's work."""

from collections.abc import Callable

from streams.nats.jetstream import JetStream
from streams.nats.wire import Message
from tests.sim.plan import Plan
from tests.sim.stage import R, old, staged


def zombie_has_a_renewed_lease() -> None:
    """A node sleeps through its lease while another owns its shard, and wakes with work in its memory."""
    with staged() as stage:
        stage.put(rate={"limit": 1, "burst": 1})
        stage.node()
        stage.node()
        first = stage.owner()
        stage.publish(*old(12))
        stage.wait(2.3)
        starts = stage.checkers.starts
        first.freeze()
        stage.until(lambda: stage.checkers.starts > starts + 1)
        first.wake()
        stage.settle()


def node_sleeps_through_its_first_heartbeat() -> None:
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


def answer_to_a_renewal_is_read_late() -> None:
    """A node is stopped while the answer to a renewal is on its way, and no other renewal gets through."""
    with staged(Plan(receivers=(R,), ttl_s=2.0)) as stage:
        stage.put(rate={"limit": 20, "burst": 1})
        first = stage.node()
        stage.owner()
        stage.publish(*old(60))
        began_at = stage.world.now

        def judge(message: Message, deal: Callable[[], None]) -> None:
            if not message.subject.startswith("$KV.angarium_nodes.") or stage.world.now > began_at + 6.0:
                deal()
            elif not first.frozen and not slept:
                deal()
                slept.append(True)
                first.freeze()
                stage.world.after(0.7, first.wake)

        slept: list[bool] = []
        stage.gate(judge)
        stage.settle()


def sleeper_writes_a_late_snapshot() -> None:
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


def shard_is_handed_over_while_snapshots_are_written() -> None:
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


def owner_dies_before_a_burial() -> None:
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


def journal_ages_out() -> None:
    """A shard without owner for longer than the journal lasts; the next owner has the snapshots alone."""
    with staged(Plan(snapshot_every_s=1.0)) as stage:
        stage.put(dedup_window=16)
        for events in (old(20), ["old19", "new"]):
            first = stage.node()
            stage.owner()
            stage.publish(*events)
            stage.settle()
            stage.wait(2.5)
            first.kill()
            journal = stage.run.server.streams[stage.run.names.journal]
            for position in list(journal.store.messages):
                journal.remove(position)
        stage.node()
        stage.publish("new", "newer")
        stage.settle()


def claimant_sleeps_between_two_steps() -> None:
    """A node has put `_owner` and sleeps; another one claims the shard meanwhile."""
    with staged() as stage:
        stage.put()
        first = stage.run.start_node()

        def judge(message: Message, deal: Callable[[], None]) -> None:
            deal()
            if (
                message.subject == stage.run.names.actor_keys.owner(0)
                and not stage.checkers.journals[0].flushes
            ):
                first.freeze()

        stage.gate(judge)
        stage.until(lambda: first.frozen)
        stage.node()
        stage.owner()
        first.wake()
        stage.publish("one")
        stage.settle()


def sleeper_writes_a_late_flush() -> None:
    """A node sleeps while a flush of it is on its way, which arrives after its successor's claim.

    When it wakes, the refusal comes before a lease under which it would claim the shard again.
    """
    with staged() as stage:
        stage.put()
        first = stage.node()
        stage.owner()
        held: list[Callable[[], None]] = []
        heartbeats: list[Callable[[], None]] = []

        def judge(message: Message, deal: Callable[[], None]) -> None:
            if b'"delivered"' in message.data and first.alive and not held:
                held.append(deal)
                first.freeze()
            elif held and message.subject == stage.run.names.node(first.name) and len(heartbeats) < 3:
                heartbeats.append(deal)  # They get lost.
            else:
                deal()

        stage.gate(judge)
        stage.publish("one")
        stage.until(lambda: bool(held))
        stage.node()
        stage.until(lambda: stage.checkers.starts == 2)
        held[0]()
        stage.wait(0.1)
        first.wake()
        stage.publish("two")
        stage.settle()


def lagging_replica_lacks_the_tail() -> None:
    """A new owner asks a replica that has not heard of what the old one recorded."""
    with staged(Plan(snapshot_every_s=60.0, clustered=True)) as stage:
        stage.put()
        first = stage.node()
        stage.owner()
        stage.let_replicas_stand(stage.run.names.journal)
        stage.publish("one", "two")
        stage.settle()
        first.kill()
        stage.node()
        stage.publish("three")
        stage.settle()


def replicas_do_not_show_heartbeats() -> None:
    """For longer than a lease replicas show no new heartbeat of the owner, which is there and posts."""
    with staged(Plan(clustered=True)) as stage:
        stage.put(rate={"limit": 5, "burst": 1})
        stage.node()
        stage.owner()
        stage.node()
        stage.wait(3.0)
        stage.let_replicas_stand(stage.run.names.nodes)
        stage.publish(*old(30))
        stage.wait(5.0)
        stage.let_replicas_go_on(stage.run.names.nodes)
        stage.settle()


def owner_comes_back_after_the_last_read() -> None:
    """No heartbeat is stored for longer than a lease. Another node is back first and sees the owner silent;
    then the owner is back and claims, before the other one has read whose the shard is."""
    with staged() as stage:
        stage.put(rate={"limit": 5, "burst": 1})
        nodes = [stage.node(), stage.node()]
        stage.wait(3.0)
        owner = stage.owner()
        (other,) = (each for each in nodes if each is not owner)
        stage.publish(*old(60))
        back_at, reads, released = stage.world.now + 3.5, list[Callable[[], None]](), list[bool]()

        def judge(message: Message, deal: Callable[[], None]) -> None:
            reading = message.subject.startswith("$JS.API.STREAM.MSG.GET.KV_angarium_actors")
            looking_again = bool(reads) and message.subject == "$JS.API.DIRECT.GET.KV_angarium_nodes"
            if message.subject.startswith("$KV.angarium_nodes."):
                if stage.world.now >= back_at and (reads or message.subject.endswith(other.name)):
                    deal()
            elif looking_again and message.reply.startswith(f"_INBOX.{other.name}") and not released:
                pass  # The heartbeat of the owner is a hint to read again; that read gets lost.
            elif reading and stage.world.now >= back_at and message.reply.startswith(f"_INBOX.{other.name}"):
                deal() if released else reads.append(deal)
            else:
                deal()

        stage.gate(judge)
        stage.until(lambda: bool(reads))
        starts = stage.checkers.starts
        stage.until(lambda: stage.checkers.starts > starts)
        released.append(True)
        for deal in reads:
            deal()
        stage.settle()


def connection_is_back_long_after_a_node_died() -> None:
    """The only node that is left loses its connection; the shard stays with it, and an event comes soon."""
    with staged() as stage:
        stage.put()
        nodes = [stage.node(), stage.node()]
        first = stage.owner()
        (left,) = (each for each in nodes if each is not first)
        first.kill()
        stage.until(lambda: 0 in stage.checkers.nodes[left.name].owned)
        stage.wait(5.0)
        stage.run.network.restart_server(0.3)
        stage.wait(1.3)
        stage.publish("one")
        stage.wait(1.0)
        stage.expect(bool(stage.delivered()), "a shard was handed to a node that is dead")
        stage.settle()
