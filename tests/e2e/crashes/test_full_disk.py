"""A full disk: no producer is told that an event was stored if it was not, and stored events arrive.

The disk is full for nats-server alone, by its limit of file sizes (setrlimit(2)): each write beyond it fails.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from angarium.access import Access
from angarium.operations.events import publish
from angarium.operations.events.message import NewEvent
from angarium.operations.events.publish import Publisher
from angarium.operations.failures import NotDone
from angarium.settings import Settings
from streams.nats.answers import Stored
from tests.support.fleet.fleet import Fleet
from tests.support.processes.nodes import needs_proc

RECEIVER = "acme.billing"
SUBJECT = f"angarium.deliver.{RECEIVER}"
BODY = b"x" * 3000
ROOM = 32 << 10


@contextmanager
def full_disk(pid: int) -> Iterator[None]:
    """Linux only, as `needs_proc` sees to."""
    assert sys.platform == "linux"
    import resource

    resource.prlimit(pid, resource.RLIMIT_FSIZE, (ROOM, resource.RLIM_INFINITY))
    yield
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


@needs_proc
async def test_acknowledged_events_arrive_once_there_is_room(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish, "TRIES_MAX", 1)
    await fleet.configure([RECEIVER])
    await fleet.start_ready()
    stored = 0
    with full_disk(server_pid(fleet)):
        while isinstance(await fleet.js.publish(SUBJECT, BODY), Stored):
            stored += 1
        template = NewEvent(tenant="acme", name="billing", type="message", id="7")
        failure = await Publisher(Access(fleet.js, Settings()), template).publish(BODY)
    assert isinstance(failure, NotDone)
    assert failure.kind == "unanswered"
    assert "it may be stored: publish it again with --id 7" in failure.sentence
    assert 0 < stored <= ROOM // len(BODY)
    await fleet.server.stop()
    await fleet.server.start()
    arrivals = fleet.sink.arrivals[RECEIVER]
    await fleet.until(
        lambda: {each.sequence for each in arrivals} >= set(range(1, stored + 1)), "all that was stored came"
    )


def server_pid(fleet: Fleet) -> int:
    """The server names its ports file by its pid."""
    [file] = (fleet.server.directory / "ports").glob("*.ports")
    return int(file.stem.rpartition("_")[2])
