"""The host of one shard: it keeps the actors in memory, and ties them to the shard's journal and inbox.

It lives as long as one ownership. Messages come in by `arrive`, the journal asks it for the `floor` when it
cuts a flush and tells it what is `confirmed`; acks go out by the callable that it was given. Nothing here
awaits anything but the ports.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any

from actors.appetite import Appetite
from actors.bindings import Bindings
from actors.bucket import Unclean
from actors.coalescing import next_beat
from actors.errors import AngariumError
from actors.event import Event
from actors.needs import Needed, Needs
from actors.policy import Policy
from actors.ports import (
    Backlog,
    Clock,
    Graveyard,
    Policies,
    Recorded,
    Recorder,
    Sender,
    Snapshots,
    Unavailable,
)
from actors.shell import ASK_AGAIN_S, UNCONFIRMED_MAX, Shell
from actors.state import State, is_left_over
from actors.tally import Tally

UNACKED_MAX_S = 2.0
SWEEP_S = 0.5
IDLE_S = 60.0
TURN = 16
"""Receivers that are parked before others have a turn, which takes a millisecond."""
log = logging.getLogger(__name__)


class Host:
    """The actors of one shard, under one claim.

    `claim_position` is the last position of the deliveries when the shard was claimed, `floor` where its
    reading begins. `within_lease` is asked before every first byte; `ack` takes reply subjects.
    """

    def __init__(
        self,
        *,
        epoch: int,
        claimed_at: float,
        claim_position: int,
        unclean: Unclean | None,
        floor: int,
        unacked_max: int,
        clock: Clock,
        recorder: Recorder,
        sender: Sender,
        backlog: Backlog,
        graveyard: Graveyard,
        snapshots: Snapshots,
        policies: Policies,
        tally: Tally,
        within_lease: Callable[[], bool],
        ack: Callable[[list[str]], None],
        hold: Callable[[bool], None],
        saturated: Callable[[], bool],
        refuse: Callable[[str], None],
    ) -> None:
        self.epoch = epoch
        self.claimed_at = claimed_at
        self.claim_position = claim_position
        self.unclean = unclean
        self.unacked_max = unacked_max
        self.clock = clock
        self.recorder = recorder
        self.sender = sender
        self.backlog = backlog
        self.graveyard = graveyard
        self.snapshots = snapshots
        self.policies = policies
        self.tally = tally
        self.ack = ack
        self.appetite = Appetite(hold, saturated)
        self.bindings = Bindings(floor)
        self.needs = Needs()
        self.shells: dict[str, Shell] = {}
        self.changed: dict[str, State] = {}
        self.writing: dict[str, State] = {}
        self.parked: dict[str, float | None] = {}
        self.stopped = False
        self.draining = False
        self._within_lease = within_lease
        self._refuse = refuse
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._held_up = False
        self._landed = asyncio.Event()
        self._cut = (0, floor)
        self._confirmed_floor = floor
        self._needed = Needed(0)

    # ---- beginning and end

    def begin(self, states: dict[str, State], parked: Iterable[str]) -> None:
        """Take over the actors that the journal's tail spoke of, and those that have to come back unasked."""
        for receiver, state in states.items():
            self.changed[receiver] = state
            self._shell(receiver).begin(state, self.policies.policy(receiver))
        for receiver in parked:
            self.parked.setdefault(receiver, None)
            self.activate(receiver)
        self.spawn(self._sweep())

    def stop(self) -> None:
        """Nothing is started, recorded or acked any more."""
        self.stopped = True
        self.appetite.stop()
        for shell in self.shells.values():
            shell.close()
            shell.ready.cancel()
        for task in self._tasks:
            task.cancel()
        for _, waiter in self._waiters:
            waiter.cancel()

    def go_on(self, epoch: int, claim_position: int, unclean: Unclean | None) -> None:
        """Another claim of this node follows without a gap: what is in memory stays true, the clock too."""
        self.epoch = epoch
        self.claimed_at = self.clock.now()
        self.claim_position = claim_position
        self.unclean = unclean

    async def drain(self, timeout_s: float) -> None:
        """Start nothing more, and wait for the attempts in flight."""
        self.draining = True
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self.in_flight:
                    self._landed.clear()
                    await self._landed.wait()

    def landed(self) -> None:
        """An attempt is over."""
        self._landed.set()
        self.appetite.done(self.bindings.bound)

    @property
    def in_flight(self) -> int:
        """Attempts that are being made."""
        return sum(len(shell.in_flight) for shell in self.shells.values())

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task that ends with the shard. One that breaks is a defect of ours, and is said so."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("actor.broken", exc_info=error)

    # ---- actors

    def _shell(self, receiver: str) -> Shell:
        shell = self.shells.get(receiver)
        if shell is None:
            shell = self.shells[receiver] = Shell(receiver, self)
        return shell

    def activate(self, receiver: str) -> Shell:
        """The actor in memory; if it was not, its snapshot is being read."""
        shell = self.shells.get(receiver)
        if shell is None:
            shell = self._shell(receiver)
            state = self.changed.get(receiver) or self.writing.get(receiver)
            if state is not None:
                shell.begin(state, self.policies.policy(receiver))
            else:
                self.spawn(self._load(shell))
        return shell

    async def _load(self, shell: Shell) -> None:
        while not self.stopped:
            try:
                state = await self.snapshots.load(shell.receiver)
            except Unavailable:
                await asyncio.sleep(ASK_AGAIN_S)
                continue
            except AngariumError as error:  # A snapshot that must not be guessed at.
                self._refuse(str(error))
                return
            if not self.stopped:
                receiver = shell.receiver
                shell.begin(state or State(receiver=receiver), self.policies.policy(receiver))
            return

    async def resident(self, receiver: str) -> Shell:
        """The actor, in memory with its state known. Cancelled if the shard stops before."""
        shell = self.activate(receiver)
        shell.touched_at = self.clock.now()
        await asyncio.shield(shell.ready)
        return shell

    def arrive(self, receiver: str, event: Event, reply: str) -> None:
        """The consumer handed out a message."""
        shell = self.shells.get(receiver) or self.activate(receiver)
        shell.arrive(event, reply)
        self.appetite.came(self.bindings.bound)
        if self.bindings.bound > self.unacked_max // 2:
            self._park_largest()

    def configured(self, receiver: str, policy: Policy | None) -> None:
        """A configuration changed. Only who waits, or was removed, must come into memory for it."""
        shell = self.shells.get(receiver)
        if shell is not None:
            shell.configure(policy)
        elif policy is None or receiver in self.parked or self.policies.removal(receiver) is not None:
            self.activate(receiver)

    def poke_all(self) -> None:
        """Whatever held the shard up is over."""
        for shell in list(self.shells.values()):
            shell.poke()

    # ---- what shells ask

    @property
    def released_to(self) -> int:
        """All messages up to there are released by the confirmed journal."""
        return self._confirmed_floor

    def within_lease(self) -> bool:
        """Whether a first byte may leave now."""
        return not self.stopped and self._within_lease()

    def may_start(self) -> bool:
        """Whether an attempt may take its token now."""
        if self.recorder.stalled or not self.within_lease():
            self._held_up = True
            return False
        return not self.draining

    def may_have_posted(self, state: State, first_bound: int) -> bool:
        """Whether an owner that vanished may have posted something of this receiver, unrecorded."""
        if self.unclean is None:
            return False
        waits = bool(state.open) or state.parked or self.bindings.received < self.unclean.position
        return waits or 0 < first_bound <= self.unclean.position

    async def confirmed_to(self, index: int) -> None:
        """Return once the journal holds the fact with that index. Cancelled if the shard stops before."""
        if self.recorder.confirmed_index < index:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append((index, waiter))
            await waiter

    # ---- what the journal says

    def floor(self, index: int) -> int:
        """The end of the unbroken run of messages released by the facts up to `index`."""
        floor = self.bindings.floor(index)
        self._cut = (index, floor)
        return floor

    def confirmed(self, entries: Sequence[Recorded]) -> None:
        """The journal holds these facts: states are true, messages may be acked, who waited may go on."""
        index = self.recorder.confirmed_index
        before = index - len(entries)
        touched: dict[str, Shell] = {}
        full: set[str] = set()
        for entry in entries:
            fact, state = entry.fact, entry.state
            receiver = fact.receiver
            shell = self.shells.get(receiver)
            if shell is not None:
                if shell.unconfirmed >= UNCONFIRMED_MAX:
                    full.add(receiver)
                shell.confirm(fact, state)
                touched[receiver] = shell
            self.changed[receiver] = state
        if self._cut[0] <= index:
            self._confirmed_floor = self._cut[1]
        for receiver, shell in touched.items():
            self._note_parked(receiver, shell.confirmed)
            if shell.barrier > before or receiver in full:
                shell.poke()
        self.acknowledge()
        if self._waiters:
            due = [waiter for each, waiter in self._waiters if each <= index and not waiter.done()]
            self._waiters = [(each, waiter) for each, waiter in self._waiters if each > index]
            for waiter in due:
                waiter.set_result(None)
        if self._held_up:
            self._held_up = False
            self.poke_all()

    def _note_parked(self, receiver: str, state: State) -> None:
        if state.unfinished:
            self.parked.setdefault(receiver, None)
        elif self.parked:
            self.parked.pop(receiver, None)

    def acknowledge(self) -> None:
        """Ack whatever the confirmed journal releases."""
        replies = self.bindings.confirmed(self.recorder.confirmed_index)
        if replies:
            self.ack(replies)

    # ---- snapshots and memory

    def take_changed(self) -> dict[str, State]:
        """The confirmed states that no snapshot holds yet; `written` or `give_back` must follow."""
        self.changed, self.writing = {}, self.changed
        return self.writing

    def forgettable(self, states: dict[str, State]) -> list[str]:
        """Which of these confirmed states need not be remembered."""
        floor, now = self._confirmed_floor, self.clock.now()
        return [receiver for receiver, state in states.items() if is_left_over(state, floor, now)]

    def written(self) -> None:
        """The snapshots hold what was taken."""
        self.writing = {}

    def give_back(self) -> None:
        """The snapshots may not hold what was taken."""
        self.changed, self.writing = self.writing | self.changed, {}

    def needed(self) -> Needed:
        """The lowest stream position that this shard still needs.

        As long as one of those that have to come back is not there, nothing more is known to be dispensable.
        """
        shells = self.shells
        if all(receiver in shells and shells[receiver].loaded for receiver in self.parked):
            states = (shell.confirmed for shell in shells.values())
            self._needed = self.needs.lowest(self._confirmed_floor, states)
        return self._needed

    def evict(self, below: int) -> None:
        """There is no room for what waits below that position: it becomes dead letters."""
        for shell in list(self.shells.values()):
            needed = shell.state.needed_position if shell.loaded else None
            if needed is not None and needed < below:
                shell.give_up_to(below - 1, "evicted")

    async def _sweep(self) -> None:
        """Twice a second: park who holds messages too long, ack what is released, let go of who rests."""
        loop = asyncio.get_running_loop()
        while not self.stopped:
            await asyncio.sleep(next_beat(loop.time(), SWEEP_S, lane=self.epoch) - loop.time())
            now = self.clock.now()
            for number, receiver in enumerate(dict.fromkeys(self.bindings.overdue(now - UNACKED_MAX_S)), 1):
                shell = self.shells.get(receiver)
                if shell is not None and shell.loaded:
                    shell.park()
                    shell.poke()
                if number % TURN == 0:
                    await asyncio.sleep(0)
            self.acknowledge()
            if self._held_up and self.may_start():
                self._held_up = False
                self.poke_all()
            self._passivate(now - IDLE_S)

    def _passivate(self, before: float) -> None:
        for receiver, shell in list(self.shells.items()):
            kept = receiver in self.changed or receiver in self.writing
            if shell.touched_at < before and shell.resting and not kept:
                shell.close()
                del self.shells[receiver]

    def _park_largest(self) -> None:
        """The inbox is half full: whoever holds most of it goes to the stream."""
        largest = max(self.shells.values(), key=lambda shell: len(shell.bound) if shell.loaded else 0)
        if largest.loaded and largest.bound:
            largest.park()
            largest.poke()
