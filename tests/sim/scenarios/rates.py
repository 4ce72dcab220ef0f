"""How many attempts may start, whoever dies between."""

from streams.jetstream import JetStream
from tests.sim.process import Process
from tests.sim.stage import old, staged


def ping_before_a_crash() -> None:
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
        stage.at_start(5, Process.kill)
        stage.publish(*old(10))
        stage.until(lambda: not stage.run.processes)

        async def delete(js: JetStream) -> None:
            await js.publish(stage.run.names.owner(0), b"", {"KV-Operation": "DEL"})

        stage.do(delete)
        stage.node()
        stage.settle()


def burst_before_a_crash() -> None:
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
