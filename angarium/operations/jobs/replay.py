"""Replays: sends a receiver's events again, as far as the stream still has them.

Each is a new delivery, at a limited pace; events that are not settled yet are left out.
"""

import secrets
import uuid
from collections import Counter
from collections.abc import Callable

from msgspec import Struct, field
from msgspec.structs import replace

from actors.errors import BadInput
from actors.ids import split_receiver
from actors.machine.state import State
from actors.policy import is_pattern
from angarium import logs
from angarium.connecting import Access
from angarium.operations.dead_letters.pages import Progress, no_progress
from angarium.operations.failures import OperationError, operation
from angarium.operations.receivers.configurations.stored import not_found
from angarium.quantities import count_text
from streams.buckets.stored_configurations import StoredConfigurations
from streams.clock import SystemTime
from streams.fleet.receivers_seen import last_snapshot, wait_for_snapshots
from streams.nats.retry import ask_for_command
from streams.reading.messages import stored_event
from streams.resending.copies import deliveries_info, pages_between
from streams.resending.job import Job
from streams.resending.replay import ReceiverRemoved, Replay, Replayed
from streams.resending.replay_lock import Choice, ReplayLock, ReplayPlan

TYPES_SHOWN_MAX = 20
OTHERS = "(others)"
NOT_SETTLED_YET = "not_settled_yet"
LEFT_COUNTED_MAX = 10_000
"""Number of events that are not settled at which counting ends: their bodies are read."""
PER_SECOND_DEFAULT = 100.0
"""Copies that a replay sends in a second by default."""


class ReplayRange(Struct, frozen=True, kw_only=True):
    """The events that are wanted: stored in a time, of types that match one of the patterns (none: all)."""

    since: float
    until: float | None = None
    types: tuple[str, ...] = ()


class Preview(Struct, frozen=True, kw_only=True):
    """The events that a replay would send. Times are RFC 3339.

    `kept_since`: the stream begins only there; earlier events of the period no longer exist.
    `left` counts those that would not be sent, by reason: `not_settled_yet`.
    """

    receiver: str
    events: int
    bytes: int
    types: dict[str, int]
    oldest_at: str | None
    newest_at: str | None
    kept_since: str | None
    left: dict[str, int]


class ReplayReport(Struct, frozen=True, kw_only=True):
    """The result of a replay, as in `streams.resending.replay`; `again` is the value of `angarium-again`.

    `left` counts those that were wanted and not settled at the beginning (`not_settled_yet`).
    """

    receiver: str
    again: str = field(name="mark")
    sent: int
    finished: bool
    purged: bool
    too_large: list[int]
    taken: list[int]
    stopped: str | None
    kept_since: str | None
    left: dict[str, int]


class Chosen(Struct, frozen=True):
    """The positions of the wanted events; `kept_since` is set if earlier events are no longer kept.

    `left`: how many are left out, by reason.
    """

    choice: Choice
    kept_since: float | None
    left: dict[str, int]

    @property
    def kept_since_text(self) -> str | None:
        """RFC 3339."""
        return None if self.kept_since is None else logs.instant(self.kept_since)


@operation
async def preview(access: Access, receiver: str, wanted: ReplayRange) -> Preview:
    """Find out what a replay would send, and send nothing. Fails as not_found and invalid."""
    chosen = await choose(access, receiver, wanted)
    types: Counter[str] = Counter()
    size, oldest, newest = 0, None, None
    subject, choice = access.names.deliveries_to(receiver), chosen.choice
    async for page in pages_between(access.js, access.names, subject, choice.begin, choice.until):
        for event in filter(choice.takes, map(stored_event, page)):
            known = event.type in types or len(types) < TYPES_SHOWN_MAX
            types[event.type if known else OTHERS] += 1
            size += len(event.body)
            oldest, newest = oldest or logs.instant(event.stored_at), logs.instant(event.stored_at)
    return Preview(
        receiver=receiver, events=types.total(), bytes=size, types=dict(types), oldest_at=oldest,
        newest_at=newest, kept_since=chosen.kept_since_text, left=chosen.left,
    )  # fmt: skip


@operation
async def replay(
    access: Access,
    receiver: str,
    wanted: ReplayRange | None,
    per_second: float | None = None,
    *,
    progress: Progress = no_progress,
    waiting: Callable[[float, float], None] = lambda began_at, wait_s: None,
    began: Callable[[Replayed], None] = lambda done: None,
) -> ReplayReport:
    """Send the events again at a limited pace; without `wanted`, finish an earlier replay.

    Without `per_second`, an earlier replay continues at its own pace.
    Fails as not_found, as invalid if an earlier replay has to be resumed first, as a conflict if another one
    for the receiver is under way, and as refused if the receiver is removed meanwhile. `waiting` is called if
    an earlier one was interrupted, `began` with the result, which changes as events are sent.
    """
    split_receiver(receiver)
    chosen = None if wanted is None else await choose(access, receiver, wanted)
    lock = await _locked(access, receiver, waiting, resume=chosen is None)
    kept_pace_s = lock.plan.pace_s if chosen is None else 0.0
    pace_s = kept_pace_s or 1 / PER_SECOND_DEFAULT if per_second is None else 1 / per_second
    work = Replay(access.js, access.names, receiver, lock, pace_s)
    if chosen is None:
        await work.resume()
    else:
        command = Job(
            id=secrets.token_hex(8), began_at=lock.time.wall(), kept_since=chosen.kept_since,
            left=chosen.left, by=access.by,
        )  # fmt: skip
        again, nonce = f"replay-{secrets.token_hex(6)}", secrets.token_hex(16)
        await work.begin(chosen.choice, again, nonce, command=command)
    began(work.done)
    try:
        with progress("replaying") as tell:
            await work.send_rest(tell)
    except ReceiverRemoved as error:
        raise await _ended(work, str(error)) from None
    done, finished = work.done, not work.done.stopped
    await work.leave(unfinished=not finished)
    return ReplayReport(
        receiver=receiver, again=lock.plan.again, sent=done.sent, finished=finished, purged=done.purged,
        too_large=done.too_large, taken=done.taken, stopped=done.stopped or None,
        kept_since=chosen.kept_since_text if chosen else None, left=chosen.left if chosen else {},
    )  # fmt: skip


async def _ended(work: Replay, why: str) -> OperationError:
    """End a replay that cannot continue, with all copies counted; returns the failure."""
    await work.resume()
    await work.leave(unfinished=False)
    sent = count_text(work.done.sent, "event")
    return OperationError("refused", f"{why}; the replay has ended, with {sent} sent")


@operation
async def abandon(access: Access, receiver: str) -> int:
    """Give up an unfinished replay; returns how many events it sent."""
    split_receiver(receiver)
    lock = await _locked(access, receiver, lambda *_: None, resume=True)
    work = Replay(access.js, access.names, receiver, lock, lock.plan.pace_s)
    await work.resume()
    command = lock.plan.command
    lock.change(command=command and replace(command, stop=True))
    await work.leave(unfinished=False)
    return lock.plan.sent


async def _locked(
    access: Access, receiver: str, waiting: Callable[[float, float], None], *, resume: bool
) -> ReplayLock:
    """The lock; refuses to begin while a replay is unfinished, and to resume if none is."""
    lock = ReplayLock(access.js, access.names, receiver, uuid.uuid4().hex, SystemTime(), by=access.by)
    before = await lock.read()
    _check(receiver, before, resume=resume)
    await lock.acquire(lambda plan, wait_s: waiting(plan.at, wait_s))
    try:
        _check(receiver, lock.plan, resume=resume)
    except OperationError:
        await lock.store(held=False)
        raise
    return lock


def _check(receiver: str, plan: ReplayPlan | None, *, resume: bool) -> None:
    unfinished = plan is not None and plan.unfinished
    if plan is not None and plan.job is not None and unfinished:
        job = f"replay.{receiver}.{plan.job.id}"
        raise OperationError(
            "conflict",
            f"a replay for {receiver} that was begun over HTTP is not finished: {job}",
            remedy=f"; wait for its end (angarium job show {job}), or stop it (angarium job stop {job})",
        )
    if unfinished and not resume:
        raise OperationError(
            "invalid",
            f"a replay for {receiver} was cut off or stopped",
            remedy=f": continue with angarium replay {receiver} --resume, or give it up with --abandon",
        )
    if resume and not unfinished:
        raise OperationError(
            "invalid", f"no replay for {receiver} was cut off", remedy="; say --since to begin one"
        )


async def choose(access: Access, receiver: str, wanted: ReplayRange) -> Chosen:
    """The stream positions for the wanted range. Raises BadInput and `OperationError`."""
    split_receiver(receiver)
    if wrong := [each for each in wanted.types if not is_pattern(each)]:
        raise BadInput(
            f"{wrong[0][:60]!r} is not an event type; write a NATS wildcard, such as order.* or order.>"
        )
    # This comes before all else: later removals end the replay.
    configurations = StoredConfigurations(access.js, access.names)
    removal = await ask_for_command(configurations.removal_before_present, receiver)
    if removal is None:
        raise not_found(receiver)
    js, stream, subject = access.js, access.names.deliveries, access.names.deliveries_to(receiver)
    info = await deliveries_info(js, access.names)
    end = info.last
    first = await ask_for_command(js.first_since, stream, subject, wanted.since)
    begin = end if first is None else first.sequence - 1
    if wanted.until is not None:
        after = await ask_for_command(js.first_since, stream, subject, wanted.until)
        end = end if after is None else min(end, after.sequence - 1)
    state = await _settled_state(access, receiver, begin, end)
    until = max(begin, min(end, state.frontier.position))
    choice = Choice(
        begin=begin, until=until, types=wanted.types,
        waiting=tuple(each.position for each in state.open), removal=removal,
    )  # fmt: skip
    # In a stream that begins with its first message nothing is gone.
    oldest = (
        await ask_for_command(js.message, stream, info.first) if info.messages and info.first > 1 else None
    )
    stream_begins_at = oldest.stored_at if oldest is not None else None
    gone = stream_begins_at is not None and stream_begins_at > wanted.since
    left = await _count_not_settled(access, subject, choice, end)
    return Chosen(choice, stream_begins_at if gone else None, {NOT_SETTLED_YET: left} if left else {})


async def _settled_state(access: Access, receiver: str, begin: int, end: int) -> State:
    """The receiver's state; it may have settled events of the range since its last snapshot.

    Then the next snapshot is awaited: what a person has just seen delivered is to be sent again.
    """
    state = await _state(access, receiver)
    subject, frontier = access.names.deliveries_to(receiver), max(begin, state.frontier.position)
    is_open = any(begin < each.position <= end for each in state.open)
    if is_open or (frontier < end and await _is_any(access, subject, frontier, end)):
        await ask_for_command(wait_for_snapshots, access.js, access.names, receiver)
        return await _state(access, receiver)
    return state


async def _is_any(access: Access, subject: str, after: int, until: int) -> bool:
    """True if the stream has an event of the receiver between two positions."""
    following = await ask_for_command(access.js.next_message, access.names.deliveries, subject, after + 1)
    return following is not None and following.sequence <= until


async def _count_not_settled(access: Access, subject: str, choice: Choice, end: int) -> int:
    """The number of wanted events that are not settled: the open ones, and those without a number."""
    counted, wanted = 0, replace(choice, waiting=())
    for position in choice.waiting:
        if choice.begin < position <= choice.until:
            message = await ask_for_command(access.js.message, access.names.deliveries, position)
            counted += message is not None and wanted.takes(stored_event(message))
    if choice.until < end:
        async for page in pages_between(access.js, access.names, subject, choice.until, end):
            counted += sum(wanted.takes(event) for event in map(stored_event, page))
            if counted >= LEFT_COUNTED_MAX:
                break
    return counted


async def _state(access: Access, receiver: str) -> State:
    """The receiver's state from its last snapshot; without an event it has none."""
    found = await ask_for_command(last_snapshot, access.js, access.names, receiver)
    if found is None:
        return State(receiver=receiver)
    if found.state is None:
        raise OperationError(
            "unusable", f"the snapshot of {receiver} cannot be read", remedy="; see angarium doctor"
        )
    return found.state
