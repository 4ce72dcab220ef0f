"""Reads the configurations of receivers in the order of their bucket, and the changes that it has dropped.

The bucket drops older values by itself. The trail of a value has the last changes before it. Older changes
are missing here, and `replaced` shows that.
"""

from collections import Counter
from typing import Any

from msgspec import Struct

from streams.buckets.change_trail import recorded, recorded_before
from streams.installation.topology import RECEIVERS_HISTORY, Names
from streams.lost_tails.marks import Mark
from streams.lost_tails.read_positions import BucketPosition, ReadPosition
from streams.nats.answers import StoredMessage
from streams.nats.jetstream import ALL_SUBJECTS, JetStream
from streams.nats.retry import retry_until_answered

UNKNOWN_REVISION = -1


class PutConfiguration(Struct, frozen=True):
    """A configuration without its secrets, or None if it was removed; `by`: who did that, if it is known.

    `replaced`: the revision before it; 0 if it created the receiver, None if nothing is known of it,
    `UNKNOWN_REVISION` if the bucket may have dropped others before it.
    """

    receiver: str
    revision: int
    stored_at: float
    document: dict[str, Any] | None
    by: str
    replaced: int | None


class BucketReader:
    """Continues reading from a position; from the beginning if the bucket was recreated or lost its tail."""

    def __init__(self, js: JetStream, names: Names) -> None:
        self._js = js
        self._stream = names.receivers
        self._names = names
        self._position: BucketPosition | None = None

    async def read(self, read_to: ReadPosition) -> tuple[ReadPosition, list[PutConfiguration]]:
        """Read what comes after the position; returns it, and where to continue. Waits for NATS.

        A change that a trail contains may have been returned before.
        """
        known = self._position = compared_position(self._js, self._stream, read_to, self._position)
        while True:
            await retry_until_answered(known.compare)
            page = await retry_until_answered(
                lambda: self._js.read(self._stream, ALL_SUBJECTS, known.position + 1)
            )
            if not known.is_doubtful:
                break  # Otherwise these messages may be from another bucket.
        if page.messages:
            last = page.messages[-1]
            known.move(Mark(position=last.position, stored_at=last.stored_at))
        return known.read_to, self._puts(page.messages)

    def _puts(self, messages: list[StoredMessage]) -> list[PutConfiguration]:
        counts, before = Counter(each.subject for each in messages), dict[str, int]()
        puts = list[PutConfiguration]()
        for message in messages:
            subject, receiver = message.subject, self._names.receiver_of_configuration(message.subject)
            # Of a key with as many values as the bucket keeps, it may have dropped the one before.
            full = counts[subject] >= RECEIVERS_HISTORY
            older = before.get(subject, UNKNOWN_REVISION if full else None)
            for each in (*recorded_before(message), recorded(message, older)):
                puts.append(
                    PutConfiguration(
                        receiver, each.revision, each.stored_at, each.document, each.by, each.replaced
                    )
                )
            before[subject] = message.position
        return puts


def compared_position(
    js: JetStream, stream: str, read_to: ReadPosition, known: BucketPosition | None
) -> BucketPosition:
    """The stored position as one that is compared; the one known so far if it is the same."""
    return known if known is not None and known.read_to == read_to else BucketPosition(js, stream, read_to)
