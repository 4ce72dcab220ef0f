"""Rates across crashes: how many attempts may start."""

from collections.abc import Callable

from streams.nats.jetstream import JetStream
from streams.nats.wire import Message
from tests.sim.plan import Plan
from tests.sim.stage import old, staged
from tests.sim.world.process import Process


def node_dies_after_a_ping() -> None:
    """A ping takes a new receiver's only token, and the node dies."""
    with staged() as stage:
        stage.put(rate={"limit": 6, "per": "minute", "burst": 1})
        stage.node()
        stage.owner()
        stage.ask("resume")
        stage.at_start(1, Process.kill)
        stage.world.after(2.0, stage.run.start_node)
        stage.ask("ping")
        stage.settle()


def attempt_starts_long_after_its_record() -> None:
    """The record of a slow receiver's attempt takes minutes, and the node dies when the attempt starts."""
    with staged(Plan(ttl_s=5.0)) as stage:
        stage.put(rate={"limit": 4, "per": "minute", "burst": 1})
        first = stage.run.start_node()
        first.skew_s = 0.0
        stage.owner()
        held: list[Callable[[], None]] = []

        def judge(message: Message, deal: Callable[[], None]) -> None:
            if ".journal." in message.subject and b'"started"' in message.data and len(held) < 300:
                held.append(deal)
            else:
                deal()

        stage.gate(judge)
        stage.publish("one", "two")
        stage.until(lambda: bool(held))
        stage.at_start(1, Process.kill)
        stage.wait(370.0)
        stage.gate(lambda message, deal: deal())
        held[-1]()
        stage.until(lambda: not first.alive)
        stage.run.start_node().skew_s = 0.0
        stage.settle()


def owner_key_is_deleted() -> None:
    """A node dies after a burst that is on no record, and an operator deletes `_owner`."""
    with staged() as stage:
        stage.put(rate={"limit": 12, "per": "minute", "burst": 5})
        stage.node()
        stage.owner()
        stage.publish("one")
        stage.settle()
        stage.wait(10.0)
        stage.put(rate={"limit": 12, "per": "minute", "burst": 4})
        stage.wait(1.0)
        stage.at_start(5, Process.kill)
        stage.publish(*old(10))
        stage.until(lambda: not stage.run.processes)

        async def delete(js: JetStream) -> None:
            await js.publish(stage.run.names.actor_keys.owner(0), b"", {"KV-Operation": "DEL"})

        stage.do(delete)
        stage.node()
        stage.settle()


def node_dies_after_a_burst() -> None:
    """A node dies right after a burst that is on no record."""
    with staged() as stage:
        stage.put(rate={"limit": 12, "per": "minute", "burst": 5})
        stage.node()
        stage.owner()
        stage.wait(1.0)
        stage.at_start(5, Process.kill)
        stage.publish(*old(10))
        stage.until(lambda: not stage.run.processes)
        stage.node()
        stage.settle()


def two_limits_hold_together() -> None:
    """The slower of two limits lets a burst through, the faster one does not."""
    with staged() as stage:
        stage.put(rate=[{"limit": 30, "per": "minute", "burst": 10}, {"limit": 1, "burst": 2}])
        stage.node()
        stage.owner()
        stage.publish(*old(10))
        stage.settle()


def ping_takes_the_token_of_a_waiting_event() -> None:
    """A ping takes the only token; by the time it is recorded, a token later has come for what waits."""
    with staged() as stage:
        stage.put(rate={"limit": 10, "per": "second", "burst": 1})
        stage.node()
        stage.owner()
        stage.wait(5.0)

        def judge(message: Message, deal: Callable[[], None]) -> None:
            if ".journal." in message.subject and b'"pinged"' in message.data:
                stage.world.after(0.3, deal)
            else:
                deal()

        stage.gate(judge)
        stage.demand("ping")
        stage.wait(0.02)
        stage.publish(*old(30))
        stage.settle()
