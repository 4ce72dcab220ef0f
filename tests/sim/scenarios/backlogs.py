"""Backlogs that are no longer wanted: skipped, forgotten, or their receiver replaced at once."""

from streams.buckets.stored_configurations import StoredConfigurations
from streams.nats.answers import Stored
from streams.nats.jetstream import JetStream
from tests.sim.plan import Plan
from tests.sim.stage import R, Stage, old, staged
from tests.sim.world.receivers import Manner


def put_again(stage: Stage) -> None:
    """By our own tools, which leave nothing of what was there before."""

    async def put_again(js: JetStream) -> None:
        configurations = StoredConfigurations(js, stage.run.names)
        assert isinstance(await configurations.delete(R), Stored)
        assert isinstance(await configurations.put(R, b'{"url": "https://example.com/a"}'), Stored)

    stage.do(put_again)


def receiver_is_put_again_at_once() -> None:
    """A paused receiver with waiting events is removed and put again at once: it gets none of them."""
    with staged() as stage:
        stage.put(paused=True)
        stage.node()
        stage.owner()
        stage.publish(*old(5))
        stage.wait(3.0)
        release = stage.hold_reads(stage.run.names.receivers)
        put_again(stage)
        release()
        stage.wait(2.0)
        stage.publish("new")
        stage.settle()
        stage.expect(stage.delivered() == {6}, f"only the new event is wanted, not {stage.delivered()}")


def receiver_is_put_again_twice() -> None:
    """The second time while the events from before the first are being read: those between belong to none."""
    with staged() as stage:
        stage.put(paused=True)
        stage.node()
        stage.owner()
        stage.publish(*old(5))
        stage.wait(3.0)
        release = stage.hold_reads(stage.run.names.deliveries)
        put_again(stage)
        stage.wait(1.5)
        stage.publish("between")
        stage.wait(0.2)
        put_again(stage)
        stage.wait(1.5)
        stage.publish("new")
        stage.wait(0.1)
        release()
        stage.settle()
        stage.expect(stage.delivered() == {7}, f"only the new event is wanted, not {stage.delivered()}")


def receiver_is_put_again_before_a_node_hears_of_it() -> None:
    """A name is put, gets an event and is put again, and the node hears of all that afterwards."""
    with staged() as stage:
        stage.node()
        stage.owner()
        stage.wait(3.0)
        release = stage.hold_reads(stage.run.names.receivers)
        stage.put()
        stage.publish("between")
        stage.wait(0.2)
        put_again(stage)
        stage.wait(0.1)
        release()
        stage.wait(2.0)
        stage.publish("new")
        stage.settle()
        stage.expect(stage.delivered() == {2}, f"only the new event is wanted, not {stage.delivered()}")


def lagging_replica_answers_while_events_are_forgotten() -> None:
    """An owner has posted three events and dies with its record; the next one forgets, and counts none."""
    with staged(Plan(clustered=True)) as stage:
        stage.put()
        first = stage.node()
        owner = stage.owner()
        stage.let_replicas_stand(stage.run.names.deliveries)
        stage.lose_facts(b'"delivered"', owner)
        stage.publish("one", "two", "three")
        stage.wait(0.5)
        first.kill()
        stage.put(paused=True)
        stage.node()
        stage.owner()
        stage.ask("forget")
        stage.let_replicas_go_on(stage.run.names.deliveries)
        stage.put()
        stage.publish("four")
        stage.settle()


def death_is_lost() -> None:
    """An owner gives an event up, and dies with the record of that; the next one has more patience."""
    with staged() as stage:
        stage.put(retry={"base_s": 0.05, "rejected_attempts": 1})
        first = stage.node()
        stage.owner()
        stage.lose_facts(b'"dead_lettered"', first)
        stage.receiver_is(Manner.REJECTS)
        stage.publish("one")
        stage.wait(1.0)
        first.kill()
        stage.receivers_are_good()
        stage.put()
        stage.node()
        stage.settle()


def forgetting_is_lost() -> None:
    """An owner forgets what waits, a repeat with it, goes on beyond, and dies with the record of both."""
    with staged() as stage:
        stage.put(retry={"base_s": 20.0, "cap_s": 20.0})
        first = stage.node()
        owner = stage.owner()
        stage.receiver_is(Manner.REJECTS)
        stage.publish("one", "two", "two", "three")
        stage.wait(1.0)
        stage.receivers_are_good()
        stage.lose_facts(b'"forgot"', owner)
        stage.demand("forget")
        stage.publish("new")
        stage.wait(1.0)
        first.kill()
        stage.node()
        stage.owner()
        stage.ask("resume")
        stage.settle()
