"""The history of a shard: all marks that its journal has recorded, and how many of them still hold."""

import math
from collections.abc import Iterable
from functools import partial

from actors.machine.numbering import Numbered
from streams.installation.topology import Names
from streams.journal.checkpoint import read_checkpoint
from streams.journal.envelope import decode_flush
from streams.lost_tails.marks import Mark, Marks
from streams.nats.jetstream import JetStream
from streams.nats.retry import retry_until_answered, stream_info


class StreamHistory:
    """All marks of one shard. `latest` are those recorded last; the others are all known messages."""

    def __init__(self) -> None:
        self.latest = Marks()
        self.deliveries: set[Mark] = set()
        self.events: set[Mark] = set()

    def add(self, marks: Marks) -> None:
        """Add recorded marks. If they are lower than before, a loss was accepted: higher ones are dropped."""
        if marks.deliveries.position < self.latest.deliveries.position:
            self.deliveries = _up_to(marks.deliveries, self.deliveries)
        if marks.events.position < self.latest.events.position:
            self.events = _up_to(marks.events, self.events)
        self.latest = marks
        self.deliveries.add(marks.deliveries)
        self.events.add(marks.events)


async def read_history(js: JetStream, names: Names, shard: int) -> StreamHistory:
    """Read the whole journal of the shard. Raises `NewerVersion` and `NotOurs`."""
    history, subject, at = StreamHistory(), names.journal_of(shard), 0
    checkpoint = await read_checkpoint(js, names, shard)
    while page := (await retry_until_answered(partial(js.read, names.journal, subject, at + 1))).messages:
        for message in page:
            at = message.position
            if checkpoint is not None and at > checkpoint.journal_position:
                history.add(checkpoint.known)
                checkpoint = None
            flush = decode_flush(message.data, f"message {at} of {names.journal}")
            history.add(flush.marks)
            for fact in flush.facts:
                for event in getattr(fact, "events", ()):
                    if isinstance(event, Numbered):
                        history.deliveries.add(Mark(position=event.position, stored_at=event.stored_at))
    if checkpoint is not None:
        history.add(checkpoint.known)
    last = await retry_until_answered(lambda: js.last_message(names.journal, subject))
    if last is not None:  # By the leader: a replica may lag.
        history.add(decode_flush(last.data, f"message {last.position} of {names.journal}").marks)
    return history


def _up_to(mark: Mark, marks: set[Mark]) -> set[Mark]:
    return {each for each in marks if each.position <= mark.position}


async def last_unchanged_mark(
    js: JetStream, stream: str, marks: Iterable[Mark], lost: Mark
) -> tuple[Mark, bool]:
    """The highest of these messages that the stream still has, and whether others took the place of any.

    If it has none of them, the position before its first message is returned. `lost` is a message that it no
    longer has. Of the messages below it that are not newer, all up to the loss are unchanged, and none beyond
    it is: so a binary search finds the loss. A newer message was read by a node that did not know about the
    loss yet. An empty position, whose message was deleted by hand, proves nothing.
    """
    info = await stream_info(js, stream)
    known = sorted(
        (each for each in marks if info.first <= each.position <= info.last and _is_older(each, lost)),
        key=lambda each: each.position,
    )
    low, high = 0, len(known)
    while low < high:
        middle = (low + high) // 2
        mark = known[middle]
        message = await retry_until_answered(partial(js.message, stream, mark.position))
        if message is None:
            del known[middle]
            high -= 1
        elif message.stored_at == mark.stored_at:
            low = middle + 1
        else:
            high = middle
    return known[low - 1] if low else Mark(position=info.first - 1), high < len(known)


def _is_older(mark: Mark, lost: Mark) -> bool:
    """True if `mark` is the lost message, or an older one before it in the same stream."""
    return mark.position <= lost.position and 0.0 < mark.stored_at <= (lost.stored_at or math.inf)
