"""Decodes data with a version `v`; a newer version is refused before its members are read."""

from typing import TypeVar

import msgspec
from msgspec import Struct

from actors.errors import NewerVersion
from streams.nats.errors import NotOurs

T = TypeVar("T")

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Errors of msgspec for invalid bytes, broken text, and deep nesting."""


class _Versioned(Struct):
    v: int


_version = msgspec.json.Decoder(_Versioned)


def read_versioned(decoder: msgspec.json.Decoder[T], data: bytes, known: int, where: str) -> T:
    """Decode the `data` found at `where`.

    Raises `NewerVersion` if its `v` is above `known`, and `NotOurs` if it is something else entirely.
    """
    try:
        version = _version.decode(data).v
        if version <= known:
            return decoder.decode(data)
    except UNREADABLE as error:
        raise NotOurs(f"{where} was not written by Angarium: {error}") from None
    raise NewerVersion(f"{where} has version {version}, this Angarium knows {known}: upgrade this node")
