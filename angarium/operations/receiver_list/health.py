"""The health of a receiver: phase, backlog, throughput, and what limits it."""

from msgspec import Struct

from actors.machine.scheduling.phases import Phase
from angarium.operations.receiver_list.throughput import Bottleneck


class ReceiverHealth(Struct, frozen=True, kw_only=True):
    """The health of a receiver, a few seconds ago; None: unknown.

    `empty_in_s`: seconds until nothing waits, if all continues as it is; null: never, or not known yet.
    `limited_by`: what keeps its backlog from going, null if nothing is held up; `unknown` for a backlog that
    is younger than the 15 s that are measured, and for a receiver that was resumed within them. The last four
    members are those of `BacklogThroughput`.
    """

    phase: Phase | None
    waiting: int | None
    oldest_at: str | None
    failing_since: str | None
    disabled: str | None
    in_per_s: float | None
    out_per_s: float | None
    empty_in_s: float | None
    limited_by: Bottleneck | None
