"""Timed events, as a producer publishes them, and their entries."""

import time

from actors.ids import stable_hash
from actors.times_as_text import instant_text
from streams.installation.partitions import partition_of
from streams.installation.topology import Names
from streams.nats.answers import Stored, StoredMessage
from streams.nats.jetstream import JetStream
from tests.contract.support.routers import PARTITION, TENANT
from tests.support.installation import SHARDS

A, B = "acme.a", "acme.b"
FAR_S = 3_600.0
DAY_S = 86_400
STUB_TTL = f"{8 * DAY_S}s"
"""A stub lives a day longer than an event, which is kept for seven."""
NEIGHBOUR = next(name for n in range(1000) if partition_of(name := f"t{n}", SHARDS) == PARTITION)


def at(seconds: float, **more: str) -> dict[str, str]:
    """The headers of an event that is due so many seconds from now."""
    return {"Angarium-Deliver-At": instant_text(time.time() + seconds), **more}


async def entries(js: JetStream, names: Names) -> list[StoredMessage]:
    """The messages at the subjects of the tenant's entries."""
    return (await js.read(names.later, names.timed_subjects.tenant_entries(TENANT), 1)).messages


async def stored_entry(
    js: JetStream, names: Names, second: int, tenant: str, event: str, source: int, **more: str
) -> None:
    """Store an entry, as a router does."""
    when = f"{second // DAY_S}.{second // 3600 % 24}.{second // 60 % 60}.{second % 60}"
    subject = f"{names.prefix}.later.0.{when}.{tenant}.{stable_hash(event)}.{source}"
    headers = {
        "Angarium-Id": event, "Angarium-Type": "a", "Angarium-Published": "1.000",
        "Angarium-Deliver-At": "2026-12-24T18:00:00Z",
    }  # fmt: skip
    assert isinstance(await js.publish(subject, b"{}", headers | more), Stored)
