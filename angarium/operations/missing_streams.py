"""Explains a failure by the streams that are missing, as before `angarium setup`."""

import asyncio

from actors.errors import Unavailable
from angarium.access import Access
from angarium.operations.failures import Kind, NotDone
from streams.installation.requirements import MissingStreams
from streams.installation.setup import missing_streams
from streams.nats.errors import ApiError

STREAMS_TIMEOUT_S = 2.0
"""Time to look for the streams; if NATS is away, the failure itself says so."""
EXPLAINED: frozenset[Kind] = frozenset({"unavailable", "unanswered", "not_found"})
"""Failures that a missing stream may be the reason of."""


async def missing_streams_or_none(access: Access) -> MissingStreams | None:
    """The missing streams; None if none is, or if that cannot be found out."""
    try:
        async with asyncio.timeout(STREAMS_TIMEOUT_S):
            return await missing_streams(access.js, access.installation)
    except (TimeoutError, Unavailable, ApiError):
        return None


async def explained(access: Access, failure: NotDone) -> NotDone:
    """The failure, with the missing streams if they may be its reason."""
    missing = await missing_streams_or_none(access) if failure.kind in EXPLAINED else None
    if missing is None:
        return failure
    text = missing.text if missing.nothing_there else f"{failure.text}; {missing.text}"
    return NotDone(kind="refused", text=text, remedy=f": {missing.remedy}")
