"""The network between the simulated processes and the server, with its faults.

A process gets its wire by `await network.connect(process)`. Faults hold from `begin`, and end with `calm`:
from then on everything has to settle.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from streams.nats.wire import Message
from tests.sim.server import FakeServer
from tests.sim.server.client import ClientWire
from tests.sim.server.sessions import Frame, Subscribe
from tests.sim.server.streams.stream import Stream
from tests.sim.world.connection import Connection
from tests.sim.world.faults import CALM, Faults
from tests.sim.world.process import Process
from tests.sim.world.world import World

RECONNECT_S = 0.25
"""Between two attempts to connect, as `streams.nats.connection` makes them."""

DEPOSED = ("_DELIVERIES", "_JOURNAL", "_actors", "_nodes")
"""The streams whose old leaders are not believed: numbers, and what counts as lost, rest on these."""

OUTBOX_BYTES_MAX = 2 << 20
"""Bytes that nats-py keeps for the next connection while there is none; it drops the rest."""


class SimWire(ClientWire):
    """A `Wire` of a simulated process. Made by `Network.connect`."""

    def __init__(self, network: "Network", process: Process, name: str) -> None:
        super().__init__(name, network.server.max_payload)
        self._network = network
        self._process = process
        self._connection: Connection | None = None
        self._connected_once = asyncio.Event()
        self._outbox: deque[Message] = deque()
        self._outbox_bytes = 0
        process.at_end(self._process_ended)

    @property
    def is_connected(self) -> bool:
        return self._connection is not None

    @property
    def connection(self) -> Connection | None:
        """The connection as the client has it; it may be broken already."""
        return self._connection

    async def open(self) -> None:
        """Return with the first connection."""
        self._attempt()
        await self._connected_once.wait()

    def transmit(self, frame: Frame) -> None:
        if not self._process.alive:
            return
        if self._connection is not None:
            self._connection.send(frame)
        elif isinstance(frame, Message) and self._outbox_bytes + len(frame.data) <= OUTBOX_BYTES_MAX:
            self._outbox.append(frame)
            self._outbox_bytes += len(frame.data)

    async def close(self) -> None:
        if self.closed or not self._process.alive:
            return
        self.closed = True
        self.listeners.clear()
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._network.forget(self)
        self.tell(False)

    def _attempt(self) -> None:
        world = self._network.world
        if not self.closed:
            world.after(self._network.delay_s(), self._reach_server)

    def _reach_server(self) -> None:
        """In the world: the attempt arrives there. Afterwards the answer arrives here."""
        network = self._network
        if not network.server.running:
            network.world.after(RECONNECT_S + network.delay_s(), self._process.post, self._attempt)
        elif self._process.alive:
            connection = Connection(network, self._process.name, self._arrived, self._broken)
            network.world.after(network.delay_s(), self._process.post, self._established, connection)

    def _established(self, connection: Connection) -> None:
        if self.closed:
            connection.close()
            return
        if connection.ended:
            self._attempt()
            return
        self._connection = connection
        for number, listener in self.listeners.items():
            connection.send(Subscribe(number, listener.subject))
        while self._outbox:
            connection.send(self._outbox.popleft())
        self._outbox_bytes = 0
        if self._connected_once.is_set():
            self.tell(True)
        self._connected_once.set()

    def _arrived(self, number: int, message: Message) -> None:
        self._process.post(self.receive, number, message)

    def _broken(self, connection: Connection) -> None:
        self._process.post(self._lost, connection)

    def _lost(self, connection: Connection) -> None:
        if self.closed or self._connection is not connection:
            return
        self._connection = None
        self._process.say("lost its connection")
        self.tell(False)
        self._network.world.after(RECONNECT_S, self._process.post, self._attempt)

    def _process_ended(self) -> None:
        if self._connection is not None:
            self._connection.abandon()
        self._network.forget(self)


class Network:
    """`faults` hold from the start until others `begin`, or `calm`."""

    def __init__(self, world: World, server: FakeServer, faults: Faults = CALM) -> None:
        self.world = world
        self.server = server
        self.chance = world.random("network")
        self.wires: dict[SimWire, None] = {}
        self._connections = 0
        self.begin(faults)

    async def connect(self, process: Process) -> SimWire:
        """A wire for the process, in whose loop this is awaited; it waits for the server to be there."""
        self._connections += 1
        wire = SimWire(self, process, f"{process.name}-{self._connections}")
        self.wires[wire] = None
        await wire.open()
        return wire

    def forget(self, wire: SimWire) -> None:
        self.wires.pop(wire, None)

    def begin(self, faults: Faults) -> None:
        """From now on these faults hold, and no others."""
        self.faults = self.server.faults = faults
        self._every(faults.cut_every_s, self._cut_one)
        self._every(faults.restart_every_s, self._restart)
        self._every(faults.leaderless_every_s, self._take_leader)
        self._every(faults.deposed_every_s, self._depose_one)

    def calm(self) -> None:
        """End all faults, also those that last: the server is there, and all streams have leaders."""
        self.world.say("the faults are over")
        self.begin(CALM)
        if not self.server.running:
            self.server.start()
        for stream in self.server.streams.values():
            if not stream.has_leader:
                self.server.find_leader(stream)
            stream.find_out()

    # What a scenario may also do by itself.

    def cut(self, wire: SimWire) -> None:
        """Breaks the connection of a process; both ends notice within `notice_s`."""
        if wire.connection is not None:
            self.world.say("the connection of %s is cut", wire.name)
            wire.connection.cut()

    def restart_server(self, away_s: float) -> None:
        """Kill the server; it comes back with all that it acknowledged."""
        if self.server.running:
            self.world.say("the server is killed, for %.3f s", away_s)
            self.server.stop()
            self.world.after(away_s, self._start_server)

    def take_leader(self, stream: Stream, away_s: float) -> None:
        """The stream and its consumers have no leader for a while."""
        if stream.has_leader:
            self.world.say("%s has no leader, for %.3f s", stream.name, away_s)
            self.server.lose_leader(stream)
            self.world.after(away_s, self._give_leader, stream)

    def depose(self, stream: Stream, for_s: float) -> None:
        """The stream gets another leader; the old one finds out later."""
        if stream.deposed is None:
            self.world.say("the leader of %s is deposed, and finds out in %.3f s", stream.name, for_s)
            stream.depose()
            self.world.after(for_s, stream.find_out)

    # For the connections.

    def happens(self, chance: float) -> bool:
        return chance > 0 and self.chance.random() < chance

    def delay_s(self) -> float:
        """Draws the delay of the next frame, if nothing before it takes longer."""
        faults = self.faults
        delay_s = faults.latency_s * (0.5 + self.chance.random())
        if self.happens(faults.hiccup):
            delay_s += faults.hiccup_s * self.chance.random()
        return delay_s

    # Faults that come by themselves.

    def _every(self, mean_s: float, fault: Callable[[], None]) -> None:
        if mean_s > 0:
            self.world.after(self.chance.expovariate(1 / mean_s), self._happen, self.faults, mean_s, fault)

    def _happen(self, faults: Faults, mean_s: float, fault: Callable[[], None]) -> None:
        if self.faults is faults:
            fault()
            self._every(mean_s, fault)

    def _cut_one(self) -> None:
        if self.wires:
            self.cut(self.chance.choice(list(self.wires)))

    def _restart(self) -> None:
        self.restart_server(self.faults.away_s * self.chance.random())

    def _take_leader(self) -> None:
        if self.server.streams:
            stream = self.chance.choice(list(self.server.streams.values()))
            self.take_leader(stream, self.faults.leaderless_s * self.chance.random())

    def _depose_one(self) -> None:
        streams = [each for name, each in self.server.streams.items() if name.endswith(DEPOSED)]
        if streams:
            self.depose(self.chance.choice(streams), self.faults.deposed_s * self.chance.random())

    def _start_server(self) -> None:
        if not self.server.running:
            self.world.say("the server is back")
            self.server.start()

    def _give_leader(self, stream: Stream) -> None:
        if not stream.has_leader:
            self.world.say("%s has a leader again", stream.name)
            self.server.find_leader(stream)
