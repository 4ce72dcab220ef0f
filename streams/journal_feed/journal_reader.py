"""Reads the journal of all shards in the order of its stream, each message once, and reports gaps.

Positions are passed strictly in order: if a replica does not show a message, the leader is asked, and if the
leader does not have it either, it was purged or erased. That is certain if the leader has a later message,
since nothing is ever stored below another message. An erased message is read from its redacted copy.
"""

from msgspec import Struct

from streams.installation.topology import Names
from streams.journal_feed.redacted_flushes import first_redacted
from streams.lost_tails.comparison import find_loss
from streams.lost_tails.read_positions import ReadPosition
from streams.nats.answers import StoredMessage
from streams.nats.errors import StreamRecreated
from streams.nats.jetstream import ALL_SUBJECTS, JetStream
from streams.nats.retry import retry_until_answered, stream_info

READ_MESSAGES_MAX = 1024
READ_BYTES_MAX = 4 << 20
"""Limit of one read: some twenty thousand facts at most."""


class Gap(Struct, frozen=True):
    """The messages from `first` to `last` are gone; the next existing one was stored at `until_at`."""

    first: int
    last: int
    until_at: float


class JournalReader:
    """Continues reading from a position, which `check` compares with the stream first.

    `doubtful`: the connection was lost since then, so the stream may be another one.
    """

    def __init__(self, js: JetStream, names: Names) -> None:
        self._js = js
        self._names = names
        self._stream = names.journal
        self._created = ""
        self.doubtful = True
        js.add_listener(self._on_change)

    def stop(self) -> None:
        self._js.remove_listener(self._on_change)

    def _on_change(self, connected: bool) -> None:
        self.doubtful = True

    async def check(self, read_to: ReadPosition) -> ReadPosition:
        """Compare the stream with the messages read from it, if it may have changed since the last time.

        Returns the position in the current stream. Raises `StreamRecreated` if the stream is another one, or
        ends before the position, or has another message there.
        """
        if not self.doubtful:
            return read_to
        self.doubtful = False
        info = await stream_info(self._js, self._stream)
        if read_to.position and read_to.created != info.created:
            raise StreamRecreated(
                f"{self._stream} was recreated: {read_to.position} messages were read from the one "
                f"created {read_to.created}, this one was created {info.created}"
            )
        loss = await find_loss(self._js, self._stream, read_to.mark)
        if loss is not None:
            raise StreamRecreated(loss.why)
        self._created = info.created
        return ReadPosition(created=info.created, mark=read_to.mark)

    async def read(self, after: int, bytes_max: int = READ_BYTES_MAX) -> list[StoredMessage] | Gap:
        """The messages that follow the position, without a hole; none at the end. Waits for NATS."""
        page = await retry_until_answered(
            lambda: self._js.read(self._stream, ALL_SUBJECTS, after + 1, READ_MESSAGES_MAX, bytes_max)
        )
        found = _unbroken(page.messages, after)
        if found:
            return found
        following = await retry_until_answered(
            lambda: self._js.next_message(self._stream, ALL_SUBJECTS, after + 1)
        )
        if following is None:
            return []
        if following.position == after + 1:
            return [following]  # The replica that was read lags.
        copy = await self._first_copy(after + 1, following.position - 1)
        if copy is not None and copy.position == after + 1:
            return [copy]
        following = copy or following
        return Gap(after + 1, following.position - 1, following.stored_at)

    async def _first_copy(self, first: int, last: int) -> StoredMessage | None:
        return await first_redacted(self._js, self._names, self._created, first, last)


def _unbroken(messages: list[StoredMessage], after: int) -> list[StoredMessage]:
    """The messages before the first hole."""
    for index, message in enumerate(messages):
        if message.position != after + 1 + index:
            return messages[:index]
    return messages
