"""The events that belong to no partition, as `angarium doctor` counts them."""

from angarium.operations.installation.finding import Finding, warning
from streams.installation.topology import Installation
from streams.nats.jetstream import JetStream
from streams.storage.strays import count_stray_events

REMEDY = "find out what publishes to subjects with a token * or >: such events reach no receiver"


async def stray_findings(js: JetStream, installation: Installation) -> list[Finding]:
    """The line that counts them; none if there are none. Raises `Unavailable` and `ApiError`."""
    count = await count_stray_events(js, installation.names, installation.shards)
    if not count:
        return []
    return [warning("events", f"{count:,} belong to no partition, so that no node routes them", REMEDY)]
