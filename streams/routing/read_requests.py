"""Requests to read a part of a tenant's events by its subject, and the end of an eviction."""

from msgspec import Struct

NO_END = 1 << 63
"""A position beyond all others."""


class ReadRequest(Struct, frozen=True):
    """A part of a tenant's events to be read: `above` a position, `up_to` another or `NO_END`."""

    tenant: str
    above: int
    up_to: int
    count_max: int


class Evicted(Struct, frozen=True):
    """The end of an eviction: `events` of a tenant `up_to` a position became dead letters."""

    tenant: str
    up_to: int
    events: int
