"""The tokens of a receiver as people see them: each of its rate limits, as configured and as in force."""

from typing import NotRequired, TypedDict

from actors.configuration.policy import SECONDS, Policy, Rate
from actors.machine.bucket import Bucket, RateLimit, refill
from actors.machine.handshake.proof import current_handshake
from actors.machine.scheduling.learnt_pace import pace_limits
from actors.machine.state import State


class BucketState(TypedDict):
    """The tokens of a rate limit: `limit`, `per` and `burst` as configured, `effective_limit` as in force.

    `margin`: the share of the limit that is used, unless it is all. `others`: those of limits that hold as
    well, if there are any.
    """

    tokens: float
    limit: float
    per: str
    burst: int
    effective_limit: float
    margin: NotRequired[float]
    others: NotRequired[list["BucketState"]]


def bucket_state(
    state: State, policy: Policy | None, bucket: Bucket | None, now: float
) -> BucketState | None:
    """Describe the bucket as it is now; None if there is no rate limit."""
    limit = state.limit
    if policy is None or limit is None:
        return None
    known = current_handshake(state, policy)
    allowed = known.per_minute if known is not None else None
    rate = policy.rate or (Rate(limit=allowed, per="minute", burst=limit.burst) if allowed else None)
    if rate is None:
        return None
    filled = refill(bucket, limit, now, bucket.epoch) if bucket else Bucket(0.0, now, 0)
    shown = _tokens(filled.tokens, rate, limit)
    learnt = pace_limits(state, policy, now).per_second
    if learnt is not None and learnt < limit.per_second:
        shown["effective_limit"] = round(learnt * SECONDS[rate.per], 6)
    others = [each for each in policy.rates if each is not rate]
    # While another list of rates waits for its adoption, the numbers of both may differ.
    if others and len(others) == len(limit.others) == len(filled.others):
        shown["others"] = list(map(_tokens, filled.others, others, limit.others))
    return shown


def _tokens(tokens: float, rate: Rate, limit: RateLimit) -> BucketState:
    shown: BucketState = {
        "tokens": round(tokens, 3),
        "limit": rate.limit,
        "per": rate.per,
        "burst": rate.burst_max,
        "effective_limit": round(limit.per_second * SECONDS[rate.per], 6),
    }
    if rate.margin != 1:
        shown["margin"] = rate.margin
    return shown
