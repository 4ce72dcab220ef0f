"""Unknown receivers among known ones, in any order of events.

Leaders fall silent, dead letters cannot be stored, facts are late, owners crash, names are put, heard of
late, or only asked for. In the end each event was delivered or turned away, and never both; those of one
receiver came in their order; and at no time did anything wait for a name that could not be decided.
"""

from collections.abc import Callable, Mapping, Sequence
from random import Random

import pytest

from actors.machine import facts as f
from actors.machine.facts import Burial
from actors.ports import Invalid
from actors.runtime.unknown_receivers import decision_rounds, record, undecided_events
from tests.unit.worlds.shard import RECEIVER, ShardWorld
from tests.unit.worlds.values import policy
from tests.unit.worlds.virtual_time import in_virtual_time

LATE = ["acme.a", "acme.b", "acme.c"]
"""Names that are put in the midst."""
NEVER = ["acme.x", "acme.y", "acme.z"]
STEPS = 40
HELD_MAX_S = 4.0
"""An event is unacked for 2 s; a sweep comes twice a second, and snapshots and facts take their time."""


class RandomCourse:
    """A course of arrivals, crashes and configurations, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.world = ShardWorld(policy(), unacked_max=100)
        self.put_at: dict[str, int] = {}
        self.stuck = False
        self._bury = self.world.dead_letters.bury
        self.world.dead_letters.bury = self.bury  # type: ignore[method-assign]

    async def bury(self, receiver: str, burials: Sequence[Burial], answers: Mapping[int, str]) -> None:
        await self.world.until(lambda: not self.stuck)
        await self._bury(receiver, burials, answers)

    # ---- what happens

    def publish(self) -> None:
        name = self.chance.choice([RECEIVER, *LATE, *NEVER])
        self.world.publish(self.chance.randint(1, 3), receiver=name)

    def put(self) -> None:
        """The leader has it, valid or not; the node hears of it now or later."""
        name, world = self.chance.choice(LATE), self.world
        if name not in self.put_at:
            self.put_at[name] = len(world.stream.messages)
            invalid = self.chance.random() < 0.3
            world.policies.leader[name] = Invalid(problems=("url: missing",)) if invalid else policy()
        if self.chance.random() < 0.5:
            self.tell(name)

    def tell(self, name: str) -> None:
        """The node hears of it."""
        world, given = self.world, self.world.policies.leader[name]
        if isinstance(given, Invalid):
            world.policies.invalid.add(name)
            world.host.configuration_changed(name, None)
        elif self.chance.random() < 0.3:
            world.policies.known[name] = given  # And who works for the shard is not told yet.
        else:
            world.put(given, name)

    def silence(self) -> None:
        policies = self.world.policies
        policies.unavailable = not policies.unavailable

    def fill(self) -> None:
        self.stuck = not self.stuck

    def hide(self) -> None:
        stream = self.world.stream
        stream.unavailable = not stream.unavailable

    def delay_facts(self) -> None:
        journal = self.world.journal
        if journal.held:
            journal.let_go()
        else:
            journal.held = True

    def slow_down(self) -> None:
        self.world.sender.latency_s = self.chance.choice([0.001, 0.001, 0.5, 3.0])

    def crash(self) -> None:
        """Starts another node, which may know fewer configurations."""
        for name in LATE:
            if self.chance.random() < 0.3:
                self.world.policies.known.pop(name, None)
                self.world.policies.invalid.discard(name)
        self.world.crash(snapshots=self.chance.random() < 0.5)

    def ask_for(self) -> None:
        self.world.host.residents.activate(self.chance.choice(LATE + NEVER))

    def write_snapshots(self) -> None:
        self.world.snapshots.held.update(self.world.host.unsaved.take())
        self.world.host.snapshots_written()

    def reset(self) -> None:
        self.world.hand_out_again()

    async def run(self) -> None:
        often: list[Callable[[], None]] = [self.publish] * 8
        seldom = [
            self.put, self.silence, self.silence, self.fill, self.hide, self.delay_facts, self.slow_down,
            self.crash, self.ask_for, self.write_snapshots, self.reset,
        ]  # fmt: skip
        for _ in range(STEPS):
            self.chance.choice([*often, *seldom])()
            await self.world.pass_time(self.chance.choice([0.0, 0.002, 0.01, 0.3, 2.5]))
            self.check_held()
        self.world.policies.unavailable = self.stuck = self.world.stream.unavailable = False
        self.world.sender.latency_s = 0.001
        self.world.journal.let_go()
        for name in self.put_at:
            self.world.put(policy(), name)
        await self.world.until(self.is_quiet, within_s=600)
        self.check_end()

    # ---- what must hold

    def check_held(self) -> None:
        """Checks that nothing is held for long, even if much cannot be decided."""
        shard_unacked, now = self.world.host.shard_unacked, self.world.clock.now()
        held = [
            each
            for each in shard_unacked._by_age
            if each.release_index is None and each.since < now - HELD_MAX_S
        ]
        assert not held, [(each.receiver, each.position) for each in held]

    def is_quiet(self) -> bool:
        journal, shard_unacked = self.world.journal, self.world.host.shard_unacked
        if shard_unacked.unacked_count or journal.confirmed_index < journal.index:
            return False
        return not any(each.is_unfinished for each in journal.folded.values())

    def check_end(self) -> None:
        facts, stored = self.world.journal.facts, self.world.stream.messages
        delivered: dict[str, list[int]] = {}
        gone: list[tuple[str, int]] = []
        for fact in facts:
            match fact:
                case f.Delivered(receiver=receiver, events=events):
                    delivered.setdefault(receiver, []).extend(each.position for each in events)
                case f.TurnedAway(events=turned_away):
                    gone += [(each.receiver, each.position) for each in turned_away]
                case f.EventRefused(receiver=receiver, position=position):
                    gone.append((receiver, position))
        for receiver, positions in delivered.items():
            assert positions == sorted(set(positions)), f"{receiver}: {positions}"
        all_delivered = [(receiver, each) for receiver, each_of in delivered.items() for each in each_of]
        everything = [(receiver, event.position) for receiver, event in stored]
        assert sorted(all_delivered + gone) == sorted(everything)
        for receiver, position in gone:
            assert receiver not in self.put_at or position <= self.put_at[receiver], f"{receiver}: {position}"
            assert receiver != RECEIVER
        assert {each.position for each in self.world.dead_letters.buried} == {
            position for _, position in gone
        }
        assert self.world.journal.floor == len(stored) or self.world.journal.folded == {}


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little is held in memory, so that much is read again."""
    monkeypatch.setattr(undecided_events, "WAITING_MAX", 4)
    monkeypatch.setattr(decision_rounds, "READ_AT_ONCE", 2)
    monkeypatch.setattr(decision_rounds, "DECIDED_AT_ONCE", 2)
    monkeypatch.setattr(record, "BURIED_AT_ONCE", 2)
    monkeypatch.setattr(decision_rounds, "PASSED_POSITIONS_MIN", 3)


@pytest.mark.parametrize("seed", range(60))
@in_virtual_time
async def test_each_event_has_its_one_end(seed: int) -> None:
    await RandomCourse(seed).run()
