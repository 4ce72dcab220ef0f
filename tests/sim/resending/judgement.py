"""Judges jobs and erasures by what the server stored and what the receivers got.

A job sends each event that it wants once more, and never twice. What an event held is in no stream once its
erasure is recorded as done, and nothing sends it after that. A receiver that was removed while a replay ran
gets no more of it, even if it is put again.
"""

import msgspec

from actors.machine.event import Event
from actors.ports import Attempt, BatchAttempt
from streams.erasing.erasures import Erasure
from streams.resending.plan_lock import LOCK_LEASE_S
from streams.resending.redrive import REMOVED, UNKNOWN_RECEIVER, UNSURE
from streams.resending.redrive_job import RedriveJobPlan
from streams.resending.replay_lock import ReplayPlan
from tests.sim.checks.checkers import Checkers
from tests.sim.server.streams.store import Stored
from tests.sim.server.streams.stream import Stream
from tests.sim.world.process import Process

DEPOSED_S = 15.0
"""Longer than a deposed leader of the configurations answers."""

_replay = msgspec.json.Decoder(ReplayPlan)
_redrive = msgspec.json.Decoder(RedriveJobPlan)
_erasure = msgspec.json.Decoder(Erasure)


def content(tenant: str, event: str) -> bytes:
    """The body under which the tenant's event with this id is published: no other body contains it."""
    return f"<content of {tenant}, {event}>".encode()


class ResendingCheckers(Checkers):
    """The checkers of every run, and those of what is sent again or erased. `streams` are the server's.

    `late_copies_come`: those of a router may be stored after an erasure, and have to be found.
    `replays_ended`: how many ended because their receiver was removed.
    """

    streams: dict[str, Stream]
    late_copies_come = False
    replays_ended = 0

    @property
    def copies(self) -> int:
        """The number of copies that jobs have sent."""
        return sum(map(len, self._copies.values()))

    def begin(self, streams: dict[str, Stream]) -> None:
        """Look at these streams; called once, before anything is stored in them."""
        self.streams = streams
        self.replays: dict[tuple[str, str], ReplayPlan] = {}
        self.redrives: dict[tuple[str, str], RedriveJobPlan] = {}
        self.requested: set[tuple[str, str]] = set()
        self.erased: set[tuple[str, str]] = set()
        self._copies: dict[tuple[str, str, str], list[int]] = {}
        self._letters: dict[int, tuple[str, str, str]] = {}
        self._removals: dict[str, list[tuple[int, float]]] = {}
        self._begun: dict[str, ReplayPlan] = {}

    # ---- what is stored

    def stored(self, stream: str, message: Stored) -> None:
        names = self.names
        if stream == names.actors and message.subject.startswith(f"$KV.{names.actors.removeprefix('KV_')}._"):
            self._plan_or_request(message)
            return
        super().stored(stream, message)
        if stream == names.receivers and (message.headers or {}).get("KV-Operation"):
            receiver = message.subject.removeprefix(names.receiver(""))
            self._removals.setdefault(receiver, []).append((message.sequence, self.world.now))
        if stream == names.deliveries:
            self._copy(*self.deliveries.events[message.sequence])
        elif stream == names.dead_letters:
            receiver, headers = message.subject.split(".", 2)[2], message.headers or {}
            number = headers["Nats-Msg-Id"].rpartition(":")[2]
            self._letters[message.sequence] = receiver, f"dead-{number}", headers.get("Angarium-Id", "")

    def _plan_or_request(self, message: Stored) -> None:
        kind, _, owner = message.subject.split("._", 1)[1].partition(".")
        self.world.say("%s of %s: %s", kind, owner, message.data)
        match kind:
            case "replay":
                plan = _replay.decode(message.data)
                self._begun[plan.again] = plan
                if plan.api_job is not None:
                    self.replays[owner.replace("=", "."), plan.api_job.id] = plan
            case "redrive" if owner:
                redrive = _redrive.decode(message.data)
                if redrive.api_job is not None:
                    self.redrives[owner, redrive.api_job.id] = redrive
            case "erased":
                self._erasure(_erasure.decode(message.data))

    def _copy(self, receiver: str, event: Event) -> None:
        if self._is_erased(receiver, event.id) and not self.late_copies_come:
            self.world.fail(f"{receiver}: {event.id} is stored at {event.position}, and was erased")
        if event.again:
            self._check_removed(receiver, event)
            copies = self._copies.setdefault((receiver, event.again, event.id), [])
            copies.append(event.position)
            if len(copies) > 1:
                self.world.fail(f"{receiver}: {event.id} is sent again as {event.again} at {copies}")

    def _check_removed(self, receiver: str, copy: Event) -> None:
        """Check that a copy comes soon after the removal of its receiver, or not at all."""
        plan = self._begun.get(copy.again)
        removed_at = None if plan is None else self._removed_at(receiver, plan)
        if removed_at is not None and self.world.now - removed_at > LOCK_LEASE_S + DEPOSED_S:
            self.world.fail(f"{receiver}: {copy.id} is sent as {copy.again}, and was removed at {removed_at}")

    def _removed_at(self, receiver: str, plan: ReplayPlan) -> float | None:
        """When the receiver was removed after the events of the replay were chosen; None if it was not."""
        known = plan.events.removal or 0
        return next((at for revision, at in self._removals.get(receiver, ()) if revision > known), None)

    def _erasure(self, erasure: Erasure) -> None:
        key = erasure.tenant, erasure.event
        self.requested.add(key)
        if erasure.done_at is None:
            return
        self.erased.add(key)
        named = content(*key)
        for name, stream in self.streams.items():
            found = [each.sequence for each in stream.store.messages.values() if named in each.data]
            if found:
                self.world.fail(f"{erasure.event} is recorded as erased, and {name} has it at {found}")

    # ---- what is sent

    def started(self, process: Process, attempt: Attempt | BatchAttempt) -> None:
        for event, _ in attempt.numbered:
            if self._is_erased(attempt.receiver, event.id):
                self.world.fail(f"{attempt.receiver}: {event.id} is sent, and was erased")
        super().started(process, attempt)

    # ---- the end

    def unsettled(self) -> str:
        """Says in a sentence what is left to be done; nothing when all is quiet."""
        for what, plans in ("replay", self.replays), ("redrive", self.redrives):
            for (owner, job), plan in plans.items():
                if plan.unfinished:
                    return f"the {what} {job} of {owner} is unfinished: {plan}"
        if left := self.requested - self.erased:
            return f"not erased: {sorted(left)}"
        return super().unsettled()

    def check_end(self) -> None:
        super().check_end()
        for (receiver, _), plan in self.replays.items():
            self._check_replay(receiver, plan)
        for (tenant, _), redrive in self.redrives.items():
            self._check_redrive(tenant, redrive)

    def _check_replay(self, receiver: str, plan: ReplayPlan) -> None:
        events, sent, erased, what = plan.events, 0, 0, f"{receiver}: the replay {plan.again}"
        assert plan.api_job is not None
        if ended := plan.api_job.failed:
            self.replays_ended += 1
            if self._removed_at(receiver, plan) is None:
                self.world.fail(f"{what} has failed: {plan.api_job.why}")
        for position in self.deliveries.stored_between(receiver, events.begin, events.until):
            event = self.deliveries.event(position)
            if events.takes(event):
                copies = self._check_copy(what, receiver, plan.again, event.id, may_lack=ended)
                sent += copies
                erased += copies if self._is_erased(receiver, event.id) else 0
        if not sent - erased <= plan.sent <= sent:  # A successor does not find copies that are erased.
            self.world.fail(f"{what} says that it sent {plan.sent}, and sent {sent}")

    def _check_redrive(self, tenant: str, plan: RedriveJobPlan) -> None:
        assert plan.api_job is not None
        what = f"the redrive {plan.api_job.id} of {tenant}"
        letters = [
            (position, *letter)
            for position, letter in self._letters.items()
            if letter[0].startswith(f"{tenant}.") and position <= plan.end
        ]
        # A copy that was erased before its letter is found neither as sent nor as not sent.
        erased = sum(self._is_erased(receiver, event) for _, receiver, _, event in letters)
        known = plan.receivers_end or 0
        removed = {
            receiver for receiver, found in self._removals.items()
            if any(revision > known for revision, _ in found)
        }  # fmt: skip
        away = {receiver for receiver in self._removals if receiver.startswith(f"{tenant}.")}
        may_leave = {UNSURE} | ({REMOVED} if removed else set()) | ({UNKNOWN_RECEIVER} if away else set())
        if set(plan.api_job.left_out) - may_leave or plan.api_job.left_out.get(UNSURE, 0) > erased:
            self.world.fail(f"{what} leaves {plan.api_job.left_out}")
        may_lack = removed | (away if UNKNOWN_RECEIVER in plan.api_job.left_out else set())
        for position, receiver, mark, event in letters:
            sent = self._check_copy(what, receiver, mark, event, may_lack=receiver in may_lack)
            if sent and position in self.streams[self.names.dead_letters].store.messages:
                self.world.fail(f"{what} sent the letter {position}, which is still there")

    def _check_copy(
        self, what: str, receiver: str, mark: str, event: str, *, may_lack: bool = False
    ) -> int:  # fmt: skip
        """Check that there is one copy, recorded as delivered; there may be none of what is erased."""
        copies = self._copies.get((receiver, mark, event), [])
        erased = self._is_erased(receiver, event)
        if not copies and not erased and not may_lack:
            self.world.fail(f"{what} has not sent {event} as {mark}")
        for each in copies:
            if not erased and not self.journal_of(receiver).is_released(each):
                self.world.fail(f"{what} has sent {event} as {mark}, and nothing of it is recorded")
        return len(copies)

    def _is_erased(self, receiver: str, event: str) -> bool:
        return (receiver.partition(".")[0], event) in self.erased
