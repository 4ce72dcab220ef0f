"""Connections from the settings: how to reach NATS, the installation's names, a connection for one task."""

import getpass
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache, partial
from typing import TypeVar

from msgspec import Struct

from angarium.file_value import FileValue
from angarium.settings import Settings
from streams.buckets.stored_configurations import StoredConfigurations
from streams.installation.topology import Installation, Names
from streams.nats.connection import ConnectOptions, connect
from streams.nats.jetstream import JetStream
from streams.sealing.key_file import read_key_file
from streams.sealing.keys import Keys, no_keys

T = TypeVar("T")


class Access(Struct, frozen=True):
    """Access to an installation, as every operation takes it: an open connection, and the settings.

    `by` names the author of changes, for the record. `admit_change` is called with the receiver before a
    configuration is stored or removed; it may raise `OperationError`. `keys` returns the keys that
    seal secrets.
    """

    js: JetStream
    settings: Settings
    by: str = ""
    admit_change: Callable[[str], None] = lambda receiver: None
    keys: Callable[[], Keys] = no_keys

    @property
    def installation(self) -> Installation:
        """The installation."""
        return installation(self.settings)

    @property
    def names(self) -> Names:
        """The names of its streams, buckets and subjects."""
        return self.installation.names

    @property
    def configurations(self) -> StoredConfigurations:
        """The configurations of its receivers, with their secrets as far as the keys open them."""
        return StoredConfigurations(self.js, self.names, self.by, self.keys)


def key_file(settings: Settings) -> FileValue[Keys]:
    """The keys in the key file of the settings; none without a file. Raises `UnusableSetting`."""
    if settings.key_file is None:
        return FileValue("key_file", {}, no_keys)
    return FileValue("key_file", {"file": settings.key_file}, partial(read_key_file, settings.key_file))


def keys_when_needed(settings: Settings) -> Callable[[], Keys]:
    """A function that reads the key file when it is called first.

    Few commands need the keys, and who may run the others may not read the file.
    """
    return cache(lambda: key_file(settings).value)


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
        return await work(Access(js, settings, operator(), keys=keys_when_needed(settings)))


def operator() -> str:
    """Name who runs this process, for the record: the user and the host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # A user without a name, as in containers.
        user = "unknown"
    return f"{user}@{socket.gethostname()}"
