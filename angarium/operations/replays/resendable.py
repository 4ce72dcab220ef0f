"""Finds the events of a receiver that can be sent again: the stream still has them, and they are settled."""

from msgspec import Struct
from msgspec.structs import replace

from actors.configuration.problems import is_pattern
from actors.errors import BadInput
from actors.ids import split_receiver
from actors.machine.state import State
from actors.times_as_text import instant_text
from angarium.access import Access
from angarium.operations.configurations.stored import not_found
from angarium.operations.failures import OperationError
from angarium.operations.missing_streams import missing_streams_or_none
from streams.buckets.stored_configurations import StoredConfigurations
from streams.nats.retry import retry_for_command
from streams.observation.receiver_snapshots import last_snapshot, wait_for_snapshots
from streams.reading.messages import stored_event
from streams.resending.copies import deliveries_info, pages_between
from streams.resending.replay_lock import EventsToResend

NOT_SETTLED_YET = "not_settled_yet"
LEFT_OUT_COUNTED_MAX = 10_000
"""Number of events that are not settled at which counting ends: their bodies are read."""


class ReplayFilter(Struct, frozen=True, kw_only=True):
    """The events that are wanted: stored in a period, of types that match one of the patterns (none: all)."""

    since: float
    until: float | None = None
    types: tuple[str, ...] = ()


class Resendable(Struct, frozen=True):
    """The wanted events that can be sent again; `kept_since` is set if earlier events are no longer kept.

    `left_out`: how many wanted events cannot be sent, by reason.
    """

    events: EventsToResend
    kept_since: float | None
    left_out: dict[str, int]

    @property
    def kept_since_text(self) -> str | None:
        """RFC 3339."""
        return None if self.kept_since is None else instant_text(self.kept_since)


async def find_resendable(access: Access, receiver: str, wanted: ReplayFilter) -> Resendable:
    """Find the wanted events in the stream. Raises BadInput and `OperationError`."""
    split_receiver(receiver)
    if wrong := [each for each in wanted.types if not is_pattern(each)]:
        raise BadInput(
            f"{wrong[0][:60]!r} is not an event type; write a NATS wildcard, such as order.* or order.>"
        )
    # What follows waits for a bucket that does not answer.
    if missing := await missing_streams_or_none(access):
        raise OperationError("refused", missing.text, remedy=f": {missing.remedy}")
    # This comes before the end of the stream: later removals end the replay.
    configurations = StoredConfigurations(access.js, access.names)
    removal = await retry_for_command(configurations.removal_before_present, receiver)
    if removal is None:
        raise not_found(receiver)
    js, stream, subject = access.js, access.names.deliveries, access.names.deliveries_to(receiver)
    info = await deliveries_info(js, access.names)
    end = info.last
    first = await retry_for_command(js.first_since, stream, subject, wanted.since)
    begin = end if first is None else first.position - 1
    if wanted.until is not None:
        after = await retry_for_command(js.first_since, stream, subject, wanted.until)
        end = end if after is None else min(end, after.position - 1)
    state = await _settled_state(access, receiver, begin, end)
    until = max(begin, min(end, state.frontier.position))
    events = EventsToResend(
        begin=begin, until=until, types=wanted.types,
        waiting=tuple(each.position for each in state.open), removal=removal,
    )  # fmt: skip
    # In a stream that begins with its first message nothing is gone.
    oldest = (
        await retry_for_command(js.message, stream, info.first) if info.messages and info.first > 1 else None
    )
    stream_begins_at = oldest.stored_at if oldest is not None else None
    gone = stream_begins_at is not None and stream_begins_at > wanted.since
    not_settled = await _count_not_settled(access, subject, events, end)
    left_out = {NOT_SETTLED_YET: not_settled} if not_settled else {}
    return Resendable(events, stream_begins_at if gone else None, left_out)


async def _settled_state(access: Access, receiver: str, begin: int, end: int) -> State:
    """The receiver's state; it may have settled events of the range since its last snapshot.

    Then the next snapshot is awaited: what a person has just seen delivered is to be sent again.
    """
    state = await _state(access, receiver)
    subject, frontier = access.names.deliveries_to(receiver), max(begin, state.frontier.position)
    is_open = any(begin < each.position <= end for each in state.open)
    if is_open or (frontier < end and await _is_any(access, subject, frontier, end)):
        await retry_for_command(wait_for_snapshots, access.js, access.names, receiver)
        return await _state(access, receiver)
    return state


async def _is_any(access: Access, subject: str, after: int, until: int) -> bool:
    """True if the stream has an event of the receiver between two positions."""
    following = await retry_for_command(access.js.next_message, access.names.deliveries, subject, after + 1)
    return following is not None and following.position <= until


async def _count_not_settled(access: Access, subject: str, settled: EventsToResend, end: int) -> int:
    """The number of wanted events that are not settled: the open ones, and those without a number."""
    counted, wanted = 0, replace(settled, waiting=())
    for position in settled.waiting:
        if settled.begin < position <= settled.until:
            message = await retry_for_command(access.js.message, access.names.deliveries, position)
            counted += message is not None and wanted.takes(stored_event(message))
    if settled.until < end:
        async for page in pages_between(access.js, access.names, subject, settled.until, end):
            counted += sum(wanted.takes(event) for event in map(stored_event, page))
            if counted >= LEFT_OUT_COUNTED_MAX:
                break
    return counted


async def _state(access: Access, receiver: str) -> State:
    """The receiver's state from its last snapshot; without an event it has none."""
    found = await retry_for_command(last_snapshot, access.js, access.names, receiver)
    if found is None:
        return State(receiver=receiver)
    if found.state is None:
        raise OperationError(
            "unusable", f"the snapshot of {receiver} cannot be read", remedy="; see angarium doctor"
        )
    return found.state
