"""The inbox of a shard: the messages of its consumer, in the order of the stream, from its floor on.

Recovery never relies on acks, so a message may come any number of times; actors recognise a message that they
have seen by its position. Acks only tell the server that it may hand out more.
"""

from collections.abc import Callable

from actors.machine.event import Event
from streams.installation.topology import Names, shard_consumer
from streams.journal.tails import NO_MARK, Loss, Mark
from streams.nats.jetstream import JetStream
from streams.nats.wire import Message
from streams.reading.delivered import place
from streams.reading.messages import RECEIVER_LOOKED_AT_MAX, event_of, receiver_problem
from streams.reading.reader import Reader

PULL_BATCH = 64


class Inbox:
    """The inbox of one shard, under one claim.

    - `on_event`: gets the receiver, the event and the reply subject for `ack`.
    - `on_malformed`: gets an impossible receiver name (two tokens of the subject), the position, the reply
      subject and the reason.
    - `floor`: must not exceed the floor of the confirmed journal.

    The other parameters are those of `Reader`.
    """

    def __init__(
        self,
        js: JetStream,
        names: Names,
        shard: int,
        *,
        on_event: Callable[[str, Event, str], None],
        on_malformed: Callable[[str, int, str, str], None],
        on_broken: Callable[[str], None],
        may_reset: Callable[[], bool],
        floor: Callable[[], int],
        on_lost: Callable[[Loss], None],
        known: Callable[[], Mark] = lambda: NO_MARK,
        created: str = "",
    ) -> None:
        self._on_event = on_event
        self._on_malformed = on_malformed
        self._prefix = len(names.delivery(shard, ""))
        self._reader = Reader(
            js,
            names.deliveries,
            shard_consumer(names, shard),
            on_message=self._on_message,
            after=floor,
            on_broken=on_broken,
            may_reset=may_reset,
            on_lost=on_lost,
            known=known,
            created=created,
            batch=PULL_BATCH,
        )
        self.start = self._reader.start
        self.stop = self._reader.stop
        self.ack = self._reader.ack
        self.hold = self._reader.hold

    @property
    def received(self) -> int:
        """The highest position passed on since the last RESET; the floor if there was none."""
        return self._reader.received

    @property
    def mark(self) -> Mark:
        """The highest message that was ever passed on, or known before."""
        return self._reader.mark

    @property
    def compared(self) -> bool:
        """True if, since the order was last in doubt, the stream was compared and is the known one."""
        return self._reader.compared

    @property
    def resets(self) -> int:
        """The number of RESETs so far."""
        return self._reader.resets

    def _on_message(self, message: Message) -> int:
        receiver, reply = message.subject[self._prefix :], message.reply
        position, stored_at = place(reply)
        problem = receiver_problem(receiver[:RECEIVER_LOOKED_AT_MAX])
        if problem:
            self._on_malformed(receiver, position, reply, problem)
        else:
            self._on_event(receiver, event_of(position, stored_at, message.headers, message.data), reply)
        return position
