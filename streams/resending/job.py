"""A job: a replay or a redrive as clients see it, whether the API or a command runs it.

It is a member of the plan that the work has anyway, so the process that holds the plan's lock runs it. If a
process of the API dies, the next one that finds the plan unchanged for a lease takes over.
"""

from msgspec import Struct, field


class Job(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The part of a plan that clients see.

    - `id`: distinguishes it from other jobs of the same receiver or tenant.
    - `began_at`: when it was requested, in seconds since the epoch.
    - `total`: messages that it looks at, in all.
    - `kept_since`: when the stream begins, if earlier events were wanted.
    - `purged`: some that were wanted were purged since.
    - `left_out`: how many were not sent, by reason.
    - `stop`: a client asks to stop it; the holder of the plan ends it then.
    - `failed`, `why`: that it cannot be done, and why; or only why it waits.
    - `by`: who began it, for people.
    """

    id: str
    began_at: float
    total: int = 0
    kept_since: float | None = None
    purged: bool = False
    left_out: dict[str, int] = field(default_factory=dict, name="left")
    stop: bool = False
    failed: bool = False
    why: str = ""
    by: str = ""
