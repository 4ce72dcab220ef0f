"""Runs a receiver that the library of the CloudEvents project makes, in Go: `.ci/cloudevents`."""

import asyncio
import json
import shutil
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

RECEIVER = shutil.which("cloudevents-receiver")
needs_cloudevents_receiver = pytest.mark.skipif(
    RECEIVER is None, reason="the receiver of CloudEvents is not installed: see .ci/run"
)


class CloudEventsReceiver:
    """A receiver at `url`, and the events that it took, in their order."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.events: list[dict[str, Any]] = []


@asynccontextmanager
async def cloudevents_receiver(origin: str, per_minute: int) -> AsyncIterator[CloudEventsReceiver]:
    """Yields a receiver that consents to this origin, and to so many requests a minute."""
    assert RECEIVER is not None
    process = await asyncio.create_subprocess_exec(
        RECEIVER, origin, str(per_minute), stdout=PIPE, stderr=DEVNULL
    )
    assert process.stdout is not None
    receiver, lines = CloudEventsReceiver((await process.stdout.readline()).decode().strip()), process.stdout

    async def read() -> None:
        async for line in lines:
            receiver.events.append(json.loads(line))

    reading = asyncio.ensure_future(read())
    try:
        yield receiver
    finally:
        process.kill()
        await process.wait()
        await reading
