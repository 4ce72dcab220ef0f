"""Finds the tenants with the most bytes in a stream: the default quota is checked for these only.

Counting takes some 70 requests a tenant, and the number of tenants is not known. A quota is there to keep
one tenant from filling a stream, and such a tenant is among few samples.
"""

from collections import defaultdict
from collections.abc import Callable

from streams.nats.answers import StreamInfo
from streams.nats.jetstream import JetStream
from streams.reading.sampling import sample_stream
from streams.storage.eviction import SAMPLES_MAX

NEAR_SHARE = 0.1
"""Share of the quota above which a tenant is near it: an estimate may be a tenth of the truth."""


async def tenants_near_quota(
    js: JetStream, stream: StreamInfo, tenant_of: Callable[[str], str | None], quota: int | None
) -> list[str]:
    """The tenants that may have more than a quota of a stream, by samples, the largest first.

    `tenant_of` returns the tenant of a subject, or None if no quota counts the message. Raises `Unavailable`.
    """
    if quota is None or stream.bytes <= quota:
        return []
    held = defaultdict[str, int](int)
    for part in await sample_stream(js, stream, SAMPLES_MAX):
        if (tenant := tenant_of(part.message.subject)) is not None:
            held[tenant] += part.size
    near = [each for each in held if held[each] > NEAR_SHARE * quota]
    return sorted(near, key=lambda each: (-held[each], each))
