"""Connections from the settings: how to reach NATS, the installation's names, a connection for one task."""

import getpass
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from msgspec import Struct

from angarium.settings import Settings
from streams.installation.topology import Installation, Names
from streams.nats.connection import ConnectOptions, connect
from streams.nats.jetstream import JetStream

T = TypeVar("T")


class Access(Struct, frozen=True):
    """Access to an installation, as every operation takes it: an open connection, and the settings.

    `by` names the author of changes, for the record. `admit_change` is called with the receiver before a
    configuration is stored or removed; it may raise `OperationError`.
    """

    js: JetStream
    settings: Settings
    by: str = ""
    admit_change: Callable[[str], None] = lambda receiver: None

    @property
    def installation(self) -> Installation:
        """The installation."""
        return installation(self.settings)

    @property
    def names(self) -> Names:
        """The names of its streams, buckets and subjects."""
        return self.installation.names


def connect_options(settings: Settings, second: bool = False) -> ConnectOptions:
    """Options for the connection to NATS; the `second` connection of a process does not log its losses."""
    return ConnectOptions(
        servers=settings.nats,
        name=settings.node,
        credentials=settings.creds,
        nkey=settings.nkey,
        tls_ca=settings.tls_ca,
        tls_certificate=settings.tls_cert,
        tls_key=settings.tls_key,
        inbox_prefix=settings.inbox_prefix,
        second=second,
    )


def installation(settings: Settings) -> Installation:
    """The installation that the settings describe."""
    return Installation(
        prefix=settings.prefix,
        shards=settings.shards,
        replicas=settings.replicas,
        max_body=settings.max_body,
        max_bytes=settings.max_bytes,
    )


@asynccontextmanager
async def open_jetstream(
    settings: Settings, second: bool = False, *, for_command: bool = False
) -> AsyncIterator[JetStream]:
    """JetStream over a connection of its own, for a long process or a command. Raises ConnectError."""
    wire = await connect(connect_options(settings, second))
    js = JetStream(wire, for_command=for_command)
    try:
        await js.start()
        yield js
        await js.stop()
    finally:
        await wire.close()


async def with_access(settings: Settings, work: Callable[[Access], Awaitable[T]]) -> T:
    """Do one task for the user of this process, over a connection of its own. Raises ConnectError."""
    async with open_jetstream(settings, for_command=True) as js:
        return await work(Access(js, settings, operator()))


def operator() -> str:
    """Name who runs this process, for the record: the user and the host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # A user without a name, as in containers.
        user = "unknown"
    return f"{user}@{socket.gethostname()}"
