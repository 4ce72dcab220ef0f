"""The phases of a receiver, as clients see them; `actors.status` says which one a receiver is in."""

from typing import Literal, get_args

Phase = Literal[
    "idle", "active", "throttled", "backing_off", "offline", "paused", "disabled", "misconfigured",
    "unverified",
]  # fmt: skip
PHASES: tuple[Phase, ...] = get_args(Phase)
