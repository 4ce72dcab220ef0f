"""A nats-server in memory: core NATS and, behind it, the part of JetStream that `streams` uses.

It speaks the protocol above the bytes: subjects, headers, and the JSON of the JetStream API, so that
everything above the port `Wire` runs on it as it is. In a simulated world its time is the world's, and a
`tests.sim.world.network.Network` stands between it and the processes; without one it runs in real time on the
asyncio loop of a test, for the contract tests that compare it with the real one.
"""

from collections.abc import Callable
from itertools import count

import msgspec

from streams.nats.wire import Message
from tests.sim.server import refusals
from tests.sim.server.api import Api
from tests.sim.server.client import LoopWire
from tests.sim.server.consumers.consumer import Consumer
from tests.sim.server.consumers.pulls import status
from tests.sim.server.direct import direct_get
from tests.sim.server.interest import Interest
from tests.sim.server.sessions import Frame, Session, Subscribe, Unsubscribe
from tests.sim.server.streams import drafts
from tests.sim.server.streams.store import Headers, header_block
from tests.sim.server.streams.stream import Stream
from tests.sim.server.subjects import covers
from tests.sim.server.timing import LoopTiming, Timing, WorldTiming
from tests.sim.world.faults import CALM, Faults
from tests.sim.world.world import World


class FakeServer:
    """`clustered`: answer as a cluster of three would, and take streams with replicas."""

    def __init__(
        self, world: World | None = None, *, clustered: bool = False, max_payload: int = 1 << 20
    ) -> None:
        self.timing: Timing = WorldTiming(world) if world else LoopTiming()
        self.clustered = clustered
        self.max_payload = max_payload
        self.faults: Faults = CALM
        self.running = True
        self.streams: dict[str, Stream] = {}
        self._sessions: dict[Session, None] = {}
        self._interest: Interest[tuple[Session, int]] = Interest()
        self._api = Api(self)
        self._lives = 1
        self._connections = count(1)

    def connect(self, name: str) -> LoopWire:
        """A wire in real time."""
        return LoopWire(self, f"{name}-{next(self._connections)}")

    # Connections.

    def open(
        self, deliver: Callable[[int, Message], None], lost: Callable[[], None], name: str = ""
    ) -> Session:
        session = Session(deliver, lost, self._forget, name)
        self._sessions[session] = None
        return session

    def _forget(self, session: Session) -> None:
        for number, subject in session.subscriptions.items():
            self._interest.remove(subject, (session, number))
        del self._sessions[session]

    def receive(self, session: Session, frame: Frame) -> None:
        """Deal with what a client sent."""
        if not session.open:
            return
        match frame:
            case Message():
                self._publish(session, frame)
            case Subscribe(number, subject):
                session.subscriptions[number] = subject
                self._interest.add(subject, (session, number))
            case Unsubscribe(number):
                self._interest.remove(session.subscriptions.pop(number), (session, number))

    def _publish(self, session: Session, message: Message) -> None:
        if len(message.data) + len(header_block(message.headers)) > self.max_payload:
            session.drop()
            return
        heard = self._route(message.subject, message)
        is_ours = message.subject.startswith("$JS.")
        taken = self._jetstream(message) if is_ours else self._store(message)
        if message.reply and not heard and not taken:
            self.send(message.reply, headers=status(503) | {"Nats-Subject": message.subject})

    def send(
        self, to: str, data: bytes = b"", headers: Headers | None = None, subject: str = "", reply: str = ""
    ) -> None:
        """Deliver to the clients that listen on `to`; the message carries `subject` where that is given."""
        self._route(to, Message(subject or to, data, reply, headers))

    def listens(self, subject: str) -> bool:
        return bool(self._interest.listeners(subject))

    def _route(self, to: str, message: Message) -> bool:
        listeners = self._interest.listeners(to)
        if not listeners:  # No client hears most of what streams store.
            return False
        head = len(message.subject) + len(message.reply) + len(header_block(message.headers))
        size = head + len(message.data)
        for session, number in listeners:
            # Who receives a message may change its headers.
            headers = None if message.headers is None else dict(message.headers)
            session.deliver(number, Message(message.subject, message.data, message.reply, headers, size))
        return True

    # JetStream.

    def stream_of(self, subject: str) -> Stream | None:
        """The stream that stores what is published on the subject."""
        for stream in self.streams.values():
            for pattern in stream.subjects:
                if covers(pattern, subject):
                    return stream
        return None

    def consumer(self, stream: str, name: str) -> Consumer | None:
        """None also while it has no leader."""
        found = self.streams.get(stream)
        return found.consumers.get(name) if found and found.has_leader else None

    def _store(self, message: Message) -> bool:
        stream = self.stream_of(message.subject)
        if stream is None or not stream.has_leader:
            return False
        refusal = self._conflict(message.headers or {})
        answer = (
            stream.refused(refusal)
            if refusal
            else stream.publish(message.subject, message.data, message.headers)
        )
        if message.reply:
            self.send(message.reply, msgspec.json.encode(answer) if answer else b"")
        return True

    def _conflict(self, headers: Headers) -> refusals.Refusal | None:
        """By chance, a cluster still has another message with the same claim in process."""
        if drafts.LAST in headers and self.happens(self.faults.conflict):
            return refusals.CONFLICT
        if drafts.MESSAGE_ID in headers and self.happens(self.faults.conflict):
            return refusals.ID_IN_PROCESS
        return None

    def happens(self, chance: float) -> bool:
        """Draws an event of that probability."""
        return chance > 0 and self.timing.chance.random() < chance

    def _jetstream(self, message: Message) -> bool:
        """True if JetStream listens on the subject."""
        tokens = message.subject.split(".")
        match tokens[1:]:
            case ["ACK", stream, consumer, _, sequence, number, _, _]:
                return self._ack(stream, consumer, int(sequence), int(number), message)
            case ["API", "CONSUMER", "MSG", "NEXT", stream, consumer]:
                return self._pull(stream, consumer, message)
            case ["API", "DIRECT", "GET", stream, *subject]:
                return self._direct_get(stream, ".".join(subject), message)
            case ["API", *operation]:
                self._api.take(operation, message)
                return True
            case _:
                return False

    def _ack(self, stream: str, name: str, sequence: int, number: int, message: Message) -> bool:
        consumer = self.consumer(stream, name)
        if consumer is None:
            return False
        if consumer.ack(sequence, number, message.data) and message.reply:
            self.send(message.reply)
        return True

    def _pull(self, stream: str, name: str, message: Message) -> bool:
        consumer = self.consumer(stream, name)
        if consumer is None:
            return False
        try:
            body = msgspec.json.decode(message.data or b"1")
        except msgspec.DecodeError as error:
            self.send(message.reply, headers=status(400, f"Bad Request - {error}"))
        else:
            consumer.pull(message.reply, body)
        return True

    def _direct_get(self, name: str, subject: str, message: Message) -> bool:
        stream = self.streams.get(name)
        if stream is None or not stream.config["allow_direct"]:
            return False
        request = msgspec.json.encode({"last_by_subj": subject}) if subject else message.data
        self.aside(self._answer_direct_get, stream, request, message.reply)
        return True

    def _answer_direct_get(self, stream: Stream, request: bytes, reply: str) -> None:
        store = stream.store
        if self.happens(self.faults.lag):
            store = stream.replicas.one(self.timing.chance, self.faults.lag_changes)
        for headers, data in direct_get(stream.name, store, request):
            self.send(reply, data, headers)

    def aside(self, callback: Callable[..., object], *args: object) -> None:
        """Runs a call soon, unless the server is restarted before."""
        self.timing.aside(self._unless_restarted, self._lives, callback, args)

    def _unless_restarted(self, life: int, callback: Callable[..., object], args: tuple[object, ...]) -> None:
        if life == self._lives and self.running:
            callback(*args)

    # Failing.

    def stop(self) -> None:
        """The process is gone, and with it all connections; what is stored stays on disk."""
        self.running = False
        self._lives += 1
        for session in list(self._sessions):
            session.drop()

    def start(self) -> None:
        """Starts the server again with what is on its disk."""
        self.running = True
        for stream in self.streams.values():
            stream.restart(self.happens(self.faults.forgetful))

    def lose_leader(self, stream: Stream) -> None:
        """The stream and its consumers do not answer until `find_leader`; replicas can still be read.

        Each consumer in memory was in that of the leader, or in another.
        """
        stream.has_leader = False
        for consumer in list(stream.consumers.values()):
            if consumer.in_memory and self.happens(0.5):
                stream.lose(consumer)
            else:
                consumer.lose_leader()

    def find_leader(self, stream: Stream) -> None:
        stream.has_leader = True
        for consumer in stream.consumers.values():
            consumer.signal()
