"""The health of some receivers, by name: phase, backlog, pace, and what limits it."""

from collections.abc import Collection

import msgspec
from msgspec import Struct

from actors.status import Phase
from angarium.connecting import Access
from angarium.operations.failures import NotDone
from angarium.operations.receivers.overview.listing import overview
from angarium.operations.receivers.overview.pace import Limit


class ReceiverHealth(Struct, frozen=True, kw_only=True):
    """The health of a receiver, a few seconds ago; None stands for what is not known.

    `drain_s`: seconds until nothing waits, if everything continues like this; null: never, or not known yet.
    `limited_by`: what keeps its backlog from going, null if nothing is held up; `unknown` for a backlog that
    is younger than the 15 s that are measured.
    """

    phase: Phase | None
    waiting: int | None
    oldest_at: str | None
    failing_since: str | None
    disabled: str | None
    in_per_s: float | None
    out_per_s: float | None
    drain_s: float | None
    limited_by: Limit | None


async def get_health(access: Access, receivers: Collection[str]) -> dict[str, ReceiverHealth] | NotDone:
    """The health of these receivers, as far as they exist."""
    if not receivers:
        return {}
    found = await overview(access, None, only=receivers)
    if isinstance(found, NotDone):
        return found
    return {row.receiver: msgspec.convert(msgspec.structs.asdict(row), ReceiverHealth) for row in found.rows}
