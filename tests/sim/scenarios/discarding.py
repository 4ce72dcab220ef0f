"""Discarded and missing events during attempts, with vanished owners and lagging replicas."""

from streams.buckets.stored_configurations import StoredConfigurations
from streams.nats.jetstream import JetStream
from streams.nats.wire import Message
from tests.sim.plan import Plan
from tests.sim.scenarios.backlogs import put_again
from tests.sim.stage import Deal, R, old, staged
from tests.sim.world.process import Process
from tests.sim.world.receivers import Manner


def events_are_forgotten_during_an_attempt() -> None:
    """The first event is under way, on no record, and the replicas know nothing of it."""
    with staged(Plan(clustered=True)) as stage:
        stage.put(timeout_s=1.0)
        stage.node()
        stage.owner()
        stage.receiver_is(Manner.HANGS)
        stage.let_replicas_stand(stage.run.names.deliveries)
        stage.publish("one")
        stage.wait(0.2)
        stage.ask("forget")
        stage.let_replicas_go_on(stage.run.names.deliveries)
        stage.receivers_are_good()
        stage.publish("two")
        stage.settle()


def events_are_forgotten_during_an_attempt_whose_message_is_gone() -> None:
    """An operator deletes the message while its attempt is under way, on no record; then all is forgotten."""
    with staged() as stage:
        stage.put(timeout_s=1.0)
        stage.node()
        stage.owner()
        stage.receiver_is(Manner.HANGS)
        stage.publish("one")
        stage.wait(0.2)
        stage.delete(1)
        stage.ask("forget")
        stage.receivers_are_good()
        stage.publish("two")
        stage.settle()


def events_are_forgotten_after_posted_ones_were_deleted() -> None:
    """An owner has posted three events and dies with its record. They are deleted, and all is forgotten."""
    with staged() as stage:
        stage.post_without_record("one", "two", "three")
        stage.delete(1, 2, 3)
        stage.node()
        stage.owner()
        stage.ask("forget")
        stage.put()
        stage.publish("four")
        stage.settle()


def events_are_forgotten_as_the_next_attempt_begins() -> None:
    """An event gets its token while all is being forgotten, and an operator deletes it before it is read."""
    with staged() as stage:
        stage.put(rate={"limit": 1, "burst": 1}, timeout_s=5.0)
        stage.node()
        stage.owner()
        stage.publish("one")
        stage.wait(0.05)
        stage.receiver_is(Manner.HANGS)
        stage.publish("two")
        stage.wait(0.1)
        release = stage.hold_reads(stage.run.names.deliveries)
        stage.demand("forget")
        stage.wait(1.5)
        stage.delete(2)
        release()
        stage.wait(0.5)
        stage.receivers_are_good()
        stage.publish("three")
        stage.settle()


def events_are_forgotten_with_a_deleted_twin() -> None:
    """An id is published twice, beyond the window, and an operator deletes the first: one number is left."""
    with staged() as stage:
        stage.put(paused=True, dedup_window=16)
        stage.node()
        stage.owner()
        stage.publish("twin", *old(20), "twin")
        stage.wait(3.0)
        stage.delete(1)
        stage.ask("forget")
        stage.put(dedup_window=16)
        stage.publish("new")
        stage.settle()


def deleted_event_is_forgotten_from_a_lagging_replica() -> None:
    """An operator has deleted what a replica still has: it is forgotten, and its id is known."""
    with staged(Plan(clustered=True)) as stage:
        stage.put(paused=True)
        stage.node()
        stage.owner()
        stage.publish("one", "two")
        stage.wait(3.0)
        stage.let_replicas_stand(stage.run.names.deliveries)
        stage.delete(1)
        stage.ask("forget")
        stage.let_replicas_go_on(stage.run.names.deliveries)
        stage.put()
        stage.publish("one", "new")
        stage.settle()
        stage.expect(stage.delivered() == {4}, f"only the new event is wanted, not {stage.delivered()}")


def events_are_forgotten_while_others_arrive() -> None:
    """An event comes while those before it are forgotten; its receiver is paused until it is too old."""
    with staged() as stage:
        stage.put(paused=True, retry={"max_age_s": 60})
        stage.node()
        stage.owner()
        stage.publish("one", "two")
        stage.wait(3.0)
        release = stage.hold_reads(stage.run.names.deliveries)
        stage.demand("forget")
        stage.wait(0.2)
        stage.publish("three")
        stage.wait(0.2)
        release()
        stage.settle()


def forgotten_events_are_sent_again() -> None:
    """Forgotten events are published again with the same ids, while replicas have heard of none of it."""
    with staged(Plan(clustered=True)) as stage:
        stage.put(paused=True)
        stage.node()
        stage.owner()
        stage.let_replicas_stand(stage.run.names.deliveries)
        stage.publish("one", "two")
        stage.wait(3.0)
        stage.ask("forget")
        stage.let_replicas_go_on(stage.run.names.deliveries)
        stage.put()
        stage.publish("two", "one", "new")
        stage.settle()
        stage.expect(stage.delivered() == {5}, f"only the new event is wanted, not {stage.delivered()}")


def one_of_many_forgotten_events_is_sent_again() -> None:
    """More is forgotten than is read for it."""
    with staged() as stage:
        stage.put(paused=True, dedup_window=16)
        stage.node()
        stage.owner()
        stage.publish(*old(1100))
        stage.wait(3.0)
        stage.ask("forget")
        stage.put(dedup_window=16)
        stage.publish("old1099", "old1084", "new")
        stage.settle()
        stage.expect(stage.delivered() == {1103}, f"only the new event is wanted, not {stage.delivered()}")


def events_are_forgotten_while_the_window_grows() -> None:
    """More is forgotten than the window held at first, and something under a wider one. What comes again is
    wanted where it was given longer ago than the wide one reaches, and what it reaches is not."""
    with staged() as stage:
        stage.put(dedup_window=16)
        stage.node()
        stage.owner()
        stage.publish(*old(16))
        stage.settle()
        stage.put(paused=True, dedup_window=16)
        stage.publish(*(f"waits{number}" for number in range(60)))
        stage.wait(3.0)
        stage.put(paused=True, dedup_window=64)
        stage.wait(1.0)
        stage.publish(*(f"last{number}" for number in range(9)))
        stage.wait(3.0)
        stage.ask("forget")
        stage.put(dedup_window=64)
        stage.publish("waits40", "old15")
        stage.settle()
        found = stage.delivered() - set(range(1, 17))
        stage.expect(found == {87}, f"only what was given long ago is wanted again, not {found}")


def forgotten_event_is_copied_again() -> None:
    """A router repeats the copy of an event that was forgotten, beyond the window."""
    with staged() as stage:
        stage.put(paused=True, dedup_window=16)
        stage.node()
        stage.owner()
        for number, each in enumerate(old(20), 1):
            stage.publish(each, source=number)
        stage.wait(3.0)
        stage.ask("forget")
        stage.put(dedup_window=16)
        stage.publish("old0", source=1)
        stage.publish("new", source=21)
        stage.settle()
        stage.expect(stage.delivered() == {22}, f"only the new event is wanted, not {stage.delivered()}")


def copy_comes_again_after_its_receiver_is_put_again() -> None:
    """A copy, and an id, that were a removed receiver's come again to the one that is put in its place."""
    with staged() as stage:
        stage.put(paused=True, dedup_window=16)
        stage.node()
        stage.owner()
        for number, each in enumerate(old(20), 1):
            stage.publish(each, source=number)
        stage.wait(3.0)
        put_again(stage)
        stage.wait(2.0)
        stage.publish("old0", source=1)
        stage.publish("old19")
        stage.publish("new", source=21)
        stage.settle()
        stage.expect(stage.delivered() == {23}, f"only the new event is wanted, not {stage.delivered()}")


def deleted_event_is_copied_again() -> None:
    """A router repeats the copy of an event that an operator has deleted."""
    with staged() as stage:
        stage.put(paused=True)
        stage.node()
        stage.owner()
        stage.publish("one", source=1)
        stage.publish("two", source=2)
        stage.wait(3.0)
        stage.delete(2)
        stage.put()
        stage.until(lambda: stage.delivered() == {1})
        stage.publish("two", source=2)
        stage.publish("three", source=3)
        stage.settle()
        stage.expect(stage.delivered() == {1, 4}, f"the second is gone for good, not {stage.delivered()}")


def posted_events_are_deleted() -> None:
    """An owner posts three events and dies with its record; they are gone before the next one reads them."""
    with staged() as stage:
        stage.post_without_record("one", "two", "three")
        stage.node()
        stage.owner()
        stage.wait(3.0)
        stage.delete(1, 2, 3)
        stage.put()
        stage.publish("four")
        stage.settle()


def refused_event_is_copied_again() -> None:
    """A copy for a receiver that was removed is refused, and comes again when it is there again."""
    with staged() as stage:
        stage.put()
        stage.node()
        stage.owner()
        stage.publish("zero")
        stage.settle()

        async def remove(js: JetStream) -> None:
            await StoredConfigurations(js, stage.run.names).delete(R)

        stage.do(remove)
        stage.wait(1.0)
        stage.publish("one", source=1)
        stage.wait(1.0)
        stage.put()
        stage.publish("one", source=1)
        stage.publish("two", source=2)
        stage.settle()
        stage.expect(stage.delivered() == {1, 4}, f"the first is a dead letter: {stage.delivered()}")


def receiver_is_put_again_under_a_blind_owner() -> None:
    """An owner does not hear that its receiver was put again; it posts the next event, and dies with that."""
    with staged() as stage:
        stage.put()
        first = stage.node()
        owner = stage.owner()
        stage.publish("one")
        stage.settle()
        configurations = f"$JS.API.DIRECT.GET.{stage.run.names.receivers}"

        def judge(message: Message, deal: Deal) -> None:
            hears = message.subject == configurations and message.reply.startswith(f"_INBOX.{owner.name}")
            records = ".journal." in message.subject and b'"delivered"' in message.data
            if not (owner.alive and (hears or records)):
                deal()

        stage.gate(judge)
        put_again(stage)
        stage.wait(0.1)
        stage.publish("two")
        stage.wait(0.5)
        first.kill()
        stage.node()
        stage.owner()
        stage.wait(1.0)
        stage.publish("three")
        stage.settle()


def owner_dies_after_a_burst_from_a_backlog() -> None:
    """An owner reads what waits of a parked receiver, posts a burst of it, and dies with the record."""
    with staged() as stage:
        stage.put(rate={"limit": 12, "per": "minute", "burst": 5}, paused=True)
        stage.node()
        stage.owner()
        stage.publish(*old(10))
        stage.wait(4.0)
        stage.at_start(5, Process.kill)
        stage.put(rate={"limit": 12, "per": "minute", "burst": 5})
        stage.until(lambda: not stage.run.processes)
        stage.node()
        stage.settle()
