"""The inbox of a shard: its messages in the order of the stream, from its floor on.

A message may come any number of times; actors recognise a message that they have seen by its position. Acks
only tell the server that it may hand out more.
"""

from collections.abc import Callable

from actors.machine.event import Event
from streams.installation.topology import Names
from streams.lost_tails.marks import NO_MARK, Mark
from streams.nats.jetstream import JetStream
from streams.nats.wire import Message
from streams.reading.messages import RECEIVER_CHECKED_MAX, event_of, receiver_problem
from streams.reading.reader import Reader, ReadingTerms
from streams.reading.reply_subject import DeliveryInfo

PULL_BATCH = 64


class Inbox:
    """The inbox of one shard, under one claim.

    - `epoch`: the epoch of the claim.
    - `on_event`: gets the receiver and the event.
    - `on_malformed`: gets an impossible receiver name (two tokens of the subject), the position and the
      reason.
    - `floor`: must not exceed the floor of the confirmed journal.
    - `joinable`: returns how many more messages could be sent together with those that wait.

    The other parameters are those of `Reader`.
    """

    def __init__(
        self,
        js: JetStream,
        names: Names,
        shard: int,
        epoch: int,
        terms: ReadingTerms,
        *,
        on_event: Callable[[str, Event], None],
        on_malformed: Callable[[str, int, str], None],
        floor: Callable[[], int],
        known_mark: Callable[[], Mark] = lambda: NO_MARK,
        joinable: Callable[[], int] = lambda: 0,
    ) -> None:
        self._on_event = on_event
        self._on_malformed = on_malformed
        self._names = names
        self._reader = Reader(
            js,
            names.deliveries,
            names.shard_consumer(shard, epoch),
            names.deliveries_of(shard),
            terms,
            on_message=self._on_message,
            after=floor,
            known_mark=known_mark,
            batch=PULL_BATCH,
            more=joinable,
        )
        self.start = self._reader.start
        self.stop = self._reader.stop
        self.ack = self._reader.ack
        self.set_pulling_paused = self._reader.set_pulling_paused

    @property
    def received(self) -> int:
        """The highest position that the current consumer passed on; the floor if there was none."""
        return self._reader.received

    @property
    def unread(self) -> int:
        """The number of messages of the shard that wait to be read."""
        return self._reader.unread

    @property
    def mark(self) -> Mark:
        """The highest message that was ever passed on, or known before."""
        return self._reader.mark

    @property
    def is_compared(self) -> bool:
        """True if, since the order was last in doubt, the stream was compared and is the known one."""
        return self._reader.is_compared

    @property
    def consumers(self) -> int:
        """The number of consumers so far."""
        return self._reader.consumers

    def _on_message(self, message: Message, info: DeliveryInfo) -> None:
        receiver = self._names.receiver_of_delivery(message.subject)
        problem = receiver_problem(receiver[:RECEIVER_CHECKED_MAX])
        if problem:
            self._on_malformed(receiver, info.position, problem)
        else:
            self._on_event(receiver, event_of(info.position, info.stored_at, message.headers, message.data))
