"""Checks before a long-running process starts that NATS permits what it needs: later it would only retry."""

from collections.abc import Collection

from actors.errors import Unavailable
from angarium.access import Access
from streams.nats.answers import Forbidden
from streams.nats.errors import NotPermitted
from streams.nats.jetstream import ALL_SUBJECTS
from streams.nats.wire_names import EXPECTED

STORED_NEVER = {EXPECTED: str(2**62)}
"""Headers with which a stream refuses every message: it expects a last one that no subject will ever have."""


async def check_permissions(access: Access, *, reads: Collection[str], writes: Collection[str] = ()) -> None:
    """Read a message of each of these streams, and let each of these subjects refuse one.

    Only `access` for a command shows what is not permitted at once. What is away now is not tried. Raises
    NotPermitted.
    """
    for stream in reads:
        try:
            await access.js.read(stream, ALL_SUBJECTS, 1, 1)
        except NotPermitted:
            raise
        except Unavailable:
            continue
    for subject in writes:
        answer = await access.js.publish(subject, b"", STORED_NEVER)
        if isinstance(answer, Forbidden):
            raise NotPermitted(answer.why, final=True)
