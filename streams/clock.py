"""Clocks: the two that ownership needs, as a port, so that tests can replace them, and that of nats-server.

Everything else takes its time from the running event loop.
"""

import time
from functools import partial
from typing import Protocol

import msgspec

from actors.errors import Unavailable
from streams.nats.errors import ApiError
from streams.nats.jetstream import JetStream
from streams.nats.protocol import ApiReply, timestamp_of

_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""A clock that runs while the machine sleeps, as CLOCK_MONOTONIC does on macOS but not on Linux."""


class Timekeeper(Protocol):
    def wall(self) -> float:
        """Seconds since the epoch; it may be set, and jump."""

    def boottime(self) -> float:
        """Seconds since an arbitrary moment; it never jumps, and runs while process or machine sleep."""


class SystemTime:
    """The clocks of this machine, without a wrapper in between: each delivery reads them several times."""

    wall = staticmethod(time.time)
    boottime = staticmethod(partial(time.clock_gettime, _BOOTTIME))


class _TimedReply(ApiReply):
    ts: str = ""


async def server_time(js: JetStream, stream: str) -> float:
    """The wall clock of the server that leads the stream, in seconds since the epoch.

    Raises `Unavailable`, and `ApiError` if there is no such stream.
    """
    answer = await js.request(f"$JS.API.STREAM.INFO.{stream}", b"")
    reply = msgspec.json.decode(answer.data, type=_TimedReply)
    if reply.error is not None:
        if reply.error.code == 503:
            raise Unavailable(f"{stream}: {reply.error.description}")
        raise ApiError(reply.error.err_code, reply.error.description)
    return timestamp_of(reply.ts)
