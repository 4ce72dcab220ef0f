"""Timed events, as a producer publishes them, and their entries."""

import time

from actors.times_as_text import instant_text
from streams.installation.partitions import partition_of
from streams.installation.topology import Names
from streams.nats.answers import StoredMessage
from streams.nats.jetstream import JetStream
from tests.contract.support.routers import PARTITION, TENANT
from tests.support.installation import SHARDS

A, B = "acme.a", "acme.b"
FAR_S = 3_600.0
NEIGHBOUR = next(name for n in range(1000) if partition_of(name := f"t{n}", SHARDS) == PARTITION)


def at(seconds: float, **more: str) -> dict[str, str]:
    """The headers of an event that is due so many seconds from now."""
    return {"Angarium-Deliver-At": instant_text(time.time() + seconds), **more}


async def entries(js: JetStream, names: Names) -> list[StoredMessage]:
    """The messages at the subjects of the tenant's entries."""
    return (await js.read(names.later, names.later_subjects.tenant_entries(TENANT), 1)).messages
