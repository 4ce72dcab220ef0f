"""Reads of a part of a tenant's events by its subject: what they need, requests, the end of an eviction."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from streams.installation.topology import Names
from streams.nats.jetstream import JetStream
from streams.reading.reader import Reader

NO_END = 1 << 63
"""A position beyond all others."""


class WaitingEvent(Protocol):
    """An event in memory. `came_at`: when it arrived or was read."""

    @property
    def tenant(self) -> str: ...
    @property
    def position(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def came_at(self) -> float: ...


class ReadRequest(Struct, frozen=True):
    """A part of a tenant's events to be read: `above` a position, `up_to` another or `NO_END`."""

    tenant: str
    above: int
    up_to: int
    count_max: int


class PartitionReads(Struct, frozen=True):
    """The reads of tenants' events in one partition, in addition to those of its consumer by `reader`.

    - `read_slots`: shared by all such reads of a node.
    - `on_broken`: called with the reason if a task of these reads is broken.
    """

    js: JetStream
    names: Names
    partition: int
    reader: Reader
    read_slots: asyncio.Semaphore
    on_broken: Callable[[str], None]


class Evicted(Struct, frozen=True):
    """The end of an eviction: `events` of a tenant `up_to` a position became dead letters."""

    tenant: str
    up_to: int
    events: int
