"""A node that is alone begins before it has read all configurations."""

from tests.sim.plan import Plan
from tests.sim.stage import R, staged

OTHERS = tuple(f"acme.o{number}" for number in range(100))


def node_reads_a_configuration_that_was_replaced() -> None:
    """A node reads the first one of a receiver, claims the shard, and only then comes to the one in force."""
    with staged(Plan(receivers=(R, *OTHERS), patience_s=0.0, configurations_read=1)) as stage:
        stage.put(timeout_s=2.0)
        for other in OTHERS:
            stage.put(other)
        stage.put(timeout_s=3.0)
        stage.publish("one")
        stage.node()
        stage.settle()
        stage.expect(stage.delivered(R) == {1}, f"the event is delivered, not {stage.delivered(R)}")
