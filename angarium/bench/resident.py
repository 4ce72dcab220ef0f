"""Memory of an idle actor: `python -m angarium.bench.resident COUNT` prints bytes.

It has a process of its own, since memory given back to the allocator does not show in the size of a process.
The actors are real, under a real host; everything around them is a stub.
"""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence

from actors import ports
from actors.configuration.policy import USUAL_LIMITS, Policy
from actors.delivery_totals import DeliveryTotals
from actors.ids import KEY_BYTES
from actors.machine.event import Event
from actors.machine.facts import AlertFact, Burial, Fact
from actors.machine.numbering import Frontier
from actors.machine.outcome import NotSent, Outcome
from actors.machine.state import State
from actors.runtime.environment import HostPorts, ShardClaim
from actors.runtime.host import Host
from angarium.bench.measuring.usage import usage

POLICY = Policy(url="https://receiver.example/", secrets=("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",))


class IdlePorts:
    """All ports of a shard on which nothing happens, except the snapshots: every window is full."""

    index = confirmed_index = 0
    is_stalled = False

    def now(self) -> float:
        return 1.0

    def add(self, fact: Fact, state: State, urgent: bool = False) -> int:
        return 0

    def flush(self) -> None:
        return

    async def send(self, attempt: ports.Attempt | ports.BatchAttempt) -> Outcome:
        return NotSent(why="nothing is sent here")

    async def read(self, receiver: str, after: int, up_to: int, count_max: int) -> ports.BacklogPage:
        return ports.BacklogPage(events=[], complete=True)

    async def read_all(self, after: int, up_to: int, count_max: int) -> ports.ShardPage:
        return ports.ShardPage(events=[], complete=True)

    async def event(self, receiver: str, position: int) -> Event | None:
        return None

    async def first_since(self, receiver: str, at: float) -> int | None:
        return None

    async def count(self, receiver: str, after: int) -> int:
        return 0

    async def erase(self, position: int, stored_at: float) -> None:
        return

    async def end(self) -> int:
        return 0

    async def bury(self, receiver: str, burials: Sequence[Burial], answers: Mapping[int, str]) -> None:
        return None

    async def publish(self, fact: AlertFact) -> None:
        return None

    async def load(self, receiver: str, due: float = 0.0) -> State:
        window = os.urandom(POLICY.dedup_window * KEY_BYTES)
        frontier = Frontier(position=1_000_000, sequence=1_000, window=window, size=POLICY.dedup_window)
        return State(receiver=receiver, frontier=frontier, opened=True, target=POLICY.url)

    is_complete = True

    def policy(self, receiver: str) -> Policy | None:
        return POLICY

    def revision(self, receiver: str) -> int:
        return 1

    def removal(self, receiver: str) -> ports.Removal | None:
        return None

    def has_record(self, receiver: str) -> bool:
        return True

    async def catch_up(self) -> None:
        return None

    async def receivers(self) -> list[str]:
        return []

    async def confirm(self, receiver: str) -> Policy | ports.Absent | ports.Invalid:
        return POLICY


async def bytes_each(count: int) -> float:
    """Measures the memory of one of `count` idle actors."""
    around = IdlePorts()
    reached = HostPorts(
        clock=around, recorder=around, sender=around, backlog=around, dead_letters=around, snapshots=around,
        policies=around, totals=DeliveryTotals(), within_lease=lambda: True, ack=lambda _: None,
        set_pulling_paused=lambda _: None, saturated=lambda: False, refuse=lambda _: None,
        on_health_change=lambda _: None, on_alert=lambda _: None, alerts=around,
        alert_limits=lambda *_: USUAL_LIMITS,
    )  # fmt: skip
    host = Host(ShardClaim(epoch=1, at=0.0, position=0, floor=0, needed=0), reached, unacked_max=20_000)
    await host.residents.when_loaded("acme.first")
    before = usage(os.getpid())
    for number in range(count):
        await host.residents.when_loaded(f"acme.receiver-{number}")
    after = usage(os.getpid())
    if before is None or after is None:
        return 0.0
    return (after.memory_mb - before.memory_mb) * 1e6 / count


if __name__ == "__main__":
    print(asyncio.run(bytes_each(int(sys.argv[1]))))
