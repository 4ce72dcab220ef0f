"""Numbers of events, over the death of any process."""

from tests.sim.stage import old, staged
from tests.sim.world.process import Process


def window_shrinks_between_owners() -> None:
    """An owner passes over a repeat and posts the next event, and dies before that is recorded; the window
    is smaller when another takes over."""
    with staged() as stage:
        stage.put(dedup_window=64)
        stage.node()
        stage.publish(*old(20))
        stage.settle()
        stage.at_start(21, Process.kill)
        stage.publish("old2", "new")
        stage.until(lambda: not stage.run.processes)
        stage.put(dedup_window=16)
        stage.node()
        stage.settle()


def window_set_is_lost() -> None:
    """The window gets smaller, on no record; what comes after is judged by it, and the node dies."""
    with staged() as stage:
        stage.put(dedup_window=64)
        first = stage.node()
        stage.publish(*old(20))
        stage.settle()
        stage.lose_facts(b"window_set", first)
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
        stage.lose_facts(b"opened", first)
        stage.at_start(21, lambda process: process.kill() if process is first else None)
        stage.publish(*old(20), "old2", "new")
        stage.wait(0.5)
        first.kill()
        stage.put(dedup_window=64)
        stage.node()
        stage.settle()
