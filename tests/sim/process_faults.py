"""Faults of a run's processes: they are killed, stopped, drained and replaced, and their clocks are wrong.

Some of it happens at random times, some at the moment when a process's word reaches the server: before the
server has dealt with it, or after that, before the answer is back. Swarm testing: each seed likes some kinds
and does without others.
"""

import asyncio
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from angarium.node.node import Node
from streams.control_requests.node_requests import NodeControl
from streams.control_requests.requests import NODES, ControlRequest
from streams.fleet.placement import PLACEMENT_VERSION
from streams.installation.topology import Names
from streams.nats.wire import Message
from tests.sim.server.sessions import Frame
from tests.sim.world.process import Process

if TYPE_CHECKING:
    from tests.sim.run import Run

SKEW_MAX_S = 150.0
"""Largest skew of a machine's wall clock. Two may be twice as far apart: promise 4 allows for that."""

AWAY_MAX_S = 20.0

DECISIVE = ("_owner", "_checkpoint", "_actors", "_JOURNAL")
"""Frames about these are likelier moments than others: between them a shard changes hands."""


ASKS_FOR_EVENTS = f"CONSUMER.MSG.NEXT.{Names().events}."


class ProcessFaults:
    """`nodes` is how many there are at first, and again at the end."""

    def __init__(self, run: "Run") -> None:
        self.run = run
        self.chance = chance = run.world.random("mishaps")
        self.nodes = chance.choice((1, 2, 2, 3))
        self.over = False
        self._skewed = chance.random() < 0.5
        self._kinds: list[tuple[float, Callable[[], None]]] = [
            (self._mean_s(2.0, 30.0), self._kill),
            (self._mean_s(2.0, 30.0), self._freeze),
            (self._mean_s(3.0, 40.0), self._stop),
            (self._mean_s(1.0, 20.0), self._step_clock),
        ]
        self._frames_until = 0
        self._at_frame = chance.random() < 0.4
        self._after_start = chance.choice((0.0, 0.0, 0.01, 0.05))
        self._draw_frame()
        self._names = run.world.random("names")
        self._late = run.world.random("late requests")
        self._drains = drains = run.world.random("drains")
        self._drain_mean_s = drains.uniform(2.0, 20.0) if drains.random() < 0.5 else 0.0
        self._older = drains.choice((0.0, 0.5))
        self._used_again = self._names.choice((0.0, 0.0, 0.5, 1.0))

    def name(self, fresh: str, dead: Collection[str]) -> str:
        """The name of the next process: that of an earlier one, where names are used again."""
        again = bool(dead) and self._names.random() < self._used_again
        return self._names.choice(sorted(dead)) if again else fresh

    def _mean_s(self, low: float, high: float) -> float:
        return self.chance.uniform(low, high) if self.chance.random() < 0.5 else 0.0

    def start(self) -> None:
        for mean_s, happen in self._kinds:
            self._again(mean_s, happen)
        self._drain_again()

    def calm(self) -> None:
        """Wakes sleeping processes, and starts one if there is none. Some are drained, perhaps all."""
        self.over = True
        for process in list(self.run.processes.values()):
            process.wake()
            if self._drain_mean_s and self._drains.random() < 0.5:
                self._request(process, "drain")
        if not self.run.processes:
            self.run.start_node()

    def missing(self) -> None:
        """A process has ended. At the end of a run there must be one."""
        if self.over:
            self.run.world.after(0.1, self._replace)

    def skew_s(self) -> float:
        return self.chance.uniform(-SKEW_MAX_S, SKEW_MAX_S) if self._skewed else 0.0

    def _again(self, mean_s: float, happen: Callable[[], None]) -> None:
        if mean_s and not self.over:
            self.run.world.after(self.chance.expovariate(1 / mean_s), self._happen, mean_s, happen)

    def _happen(self, mean_s: float, happen: Callable[[], None]) -> None:
        if not self.over:
            happen()
            self._again(mean_s, happen)

    def _any(self) -> Process | None:
        there = list(self.run.processes.values())
        return self.chance.choice(there) if there else None

    # ---- kinds

    def _kill(self) -> None:
        if (process := self._any()) is not None:
            self._end(process)

    def _end(self, process: Process) -> None:
        process.kill()
        away_s = self.chance.choice((0.05, 1.0, AWAY_MAX_S)) * self.chance.random()
        self.run.world.after(away_s, self._replace)

    def _replace(self) -> None:
        if len(self.run.processes) < self.nodes and (not self.over or not self.run.processes):
            self.run.start_node()

    def _freeze(self) -> None:
        if (process := self._any()) is not None:
            self._freeze_one(process)

    def _freeze_one(self, process: Process) -> None:
        process.freeze(suspend=self.chance.random() < 0.2)
        time_s = self.chance.choice((0.1, 1.0, 5.0, 10.0, 60.0)) * self.chance.random()
        self.run.world.after(time_s, process.wake)

    def _stop(self) -> None:
        """In order, as SIGTERM does."""
        process = self._any()
        if process is not None and process.name in self.run.stops:
            process.say("is stopped in order")
            process.post(self.run.stops[process.name].set)
            self.run.world.after(self.chance.random() * AWAY_MAX_S, self._replace)

    def _drain_again(self) -> None:
        if self._drain_mean_s and not self.over:
            self.run.world.after(self._drains.expovariate(1 / self._drain_mean_s), self._drain)

    def _drain(self) -> None:
        """An operator drains a node, or resumes one; some stay drained to the end."""
        there = list(self.run.processes.values())
        if there and not self.over:
            self._request(self._drains.choice(there), self._drains.choice(("drain", "drain", "resume")))
        self._drain_again()

    def _request(self, process: Process, verb: str) -> None:
        if process.name in self.run.checkers.nodes:
            process.say("is asked to %s", verb)
            process.post(_ask, self.run.checkers.nodes[process.name], verb)

    def placement(self) -> int:
        """The newest placement that the next process knows; none is of an older version at the end."""
        return 0 if self._drains.random() < self._older and not self.over else PLACEMENT_VERSION

    def _step_clock(self) -> None:
        if self._skewed and (process := self._any()) is not None:
            process.skew_s = self.skew_s()

    # ---- at a moment

    def started(self, process: Process) -> None:
        """An attempt starts: what follows is on no record yet."""
        if not self.over and self.chance.random() < self._after_start:
            self.run.world.after(0.3 * self.chance.random(), self._hit, process)

    def _hit(self, process: Process) -> None:
        if not self.over and process.alive:
            (self._end if self.chance.random() < 0.7 else self._freeze_one)(process)

    def _draw_frame(self) -> None:
        self._frames_until = self.chance.choice((3, 20, 200)) + self.chance.randint(0, 200)

    def arrives(self, frame: Frame, deal: Callable[[], None]) -> None:
        """Something reaches the server, which will `deal` with it."""
        late_s = self.run.plan.requests_late_s
        if late_s and not self.over and isinstance(frame, Message) and ASKS_FOR_EVENTS in frame.subject:
            self.run.world.after(late_s * self._late.random(), deal)
            return
        victim = self._victim(frame)
        if victim is None:
            deal()
            return
        hits = self._end if self.chance.random() < 0.5 else self._freeze_one
        if self.chance.random() < 0.5:
            hits(victim)
            deal()
        else:
            deal()
            hits(victim)

    def _victim(self, frame: Frame) -> Process | None:
        """The process that sent the message, if its turn has come: the inbox tells."""
        if self.over or not self._at_frame or not isinstance(frame, Message):
            return None
        if not frame.reply.startswith("_INBOX.node-") or "MSG.NEXT" in frame.subject:
            return None
        decides = frame.subject.endswith(DECISIVE) or ".journal." in frame.subject
        self._frames_until -= 20 if decides else 1
        if self._frames_until > 0:
            return None
        self._draw_frame()
        number = frame.reply.split("-")[1]
        return self.run.processes.get(f"node-{number}")


def _ask(node: Node, verb: str) -> None:
    """Let a node handle a request that is for itself; it may deny it."""
    members = node.context.members
    request = ControlRequest(verb, f"{NODES}.{members.node}", b"")
    asyncio.get_running_loop().create_task(NodeControl(members).handle(request))
