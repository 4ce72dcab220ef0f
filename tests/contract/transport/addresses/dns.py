"""A name server on a real socket that answers from a table, or not at all where a test says so.

It knows as much of RFC 1035 as a question of a stub resolver needs: one question, addresses and aliases.
"""

import asyncio
import socket
import struct
from collections import Counter
from collections.abc import Callable
from ipaddress import ip_address
from typing import Self

_TYPES = {4: 1, 6: 28}  # A and AAAA, by the version of the address
_CNAME = 5
_IN = 1


class Records:
    """The records of a name: its addresses, or the name that it is an alias of."""

    def __init__(self, *addresses: str, ttl: int = 60, alias: str | None = None) -> None:
        self.addresses = [ip_address(address) for address in addresses]
        self.ttl = ttl
        self.alias = alias


class NameServer(asyncio.DatagramProtocol):
    """`async with NameServer() as server: server.names["hook.example"] = Records("192.0.2.1")`.

    A name that is not in `names` does not exist; one in `silent` is never answered. `asked` counts questions
    for IPv4 addresses, by name, and `on_asked` is told of each before it is answered. A client that repeats a
    question, since the answer was long in coming, gets the same answer, and it counts once. One in `cut` has
    more to it than a datagram holds: it is told to come over TCP, and `connections` counts who does.
    """

    def __init__(self) -> None:
        self.names: dict[str, Records] = {}
        self.silent: set[str] = set()
        self.cut: set[str] = set()
        self.connections = 0
        self.asked: Counter[str] = Counter()
        self.on_asked: Callable[[str], None] = lambda _: None
        self._answered: dict[bytes, bytes] = {}

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        while True:
            datagrams, _ = await loop.create_datagram_endpoint(
                lambda: self, ("127.0.0.1", 0), family=socket.AF_INET
            )
            here = datagrams.get_extra_info("sockname")
            try:
                self._listening = await asyncio.start_server(self._connected, *here)
                break
            except OSError:  # Another process has that port for connections.
                datagrams.close()
        self._transport = datagrams
        self.address = "{}:{}".format(*here)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._transport.close()
        self._listening.close()
        await self._listening.wait_closed()

    def _connected(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        writer.close()

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        name, end = _name(data)
        question = data[: end + 4]  # Its number is part of it: only a repeat is the same.
        if question not in self._answered:
            self._answered[question] = self._answer(question, name)
        if name not in self.silent:
            self._transport.sendto(self._answered[question], addr)

    def _answer(self, question: bytes, name: str) -> bytes:
        (kind,) = struct.unpack_from("!H", question, len(question) - 4)
        if kind == _TYPES[4]:
            self.asked[name] += 1
            self.on_asked(name)
        records, answers, owner = self.names.get(name), [], b"\xc0\x0c"
        while records is not None and records.alias is not None:
            alias = _written(records.alias)
            answers.append(_record(owner, _CNAME, records.ttl, alias))
            owner, records = alias, self.names[records.alias]
        if records is not None:
            answers += [
                _record(owner, kind, records.ttl, address.packed)
                for address in records.addresses
                if _TYPES[address.version] == kind
            ]
        # A response, recursion wanted and available; 3: the name does not exist.
        flags = 0x8180 | (0 if name in self.names else 3) | (0x0200 if name in self.cut else 0)
        head = question[:2] + struct.pack("!5H", flags, 1, len(answers), 0, 0)
        return head + question[12:] + b"".join(answers)


def _name(data: bytes) -> tuple[str, int]:
    """The name that a question is about, and where it ends."""
    labels, at = [], 12
    while length := data[at]:
        labels.append(data[at + 1 : at + 1 + length].decode())
        at += 1 + length
    return ".".join(labels).lower(), at + 1


def _written(name: str) -> bytes:
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"


def _record(owner: bytes, kind: int, ttl: int, data: bytes) -> bytes:
    return owner + struct.pack("!HHIH", kind, _IN, ttl, len(data)) + data
