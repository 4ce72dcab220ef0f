"""The token bucket: real-valued, clamped, and inherited from owner to owner without ever granting too much.

Promise: in any window of t seconds at most `burst + rate·t` attempts start, takeovers included. Within one
ownership `now` never jumps (wall time at the claim plus monotonic time since). Between owners, time is
credited only beyond `CLOCK_SKEW_S`, since the clocks of two machines may differ. An owner that vanished may
have taken tokens without recording it, so the next owner starts with an empty bucket if that owner could have
posted.
"""

from msgspec import Struct

CLOCK_SKEW_S = 300.0
"""Largest tolerated difference between two clocks, and step back of one. Time between two owners counts only
beyond it."""
SLOW_TOKEN_S = 10.0
"""If a token takes longer than this to come, its attempt is recorded before it is made."""
GRANT_MAX_S = 5.0
"""Time within which an attempt that was recorded first must start; after it, it needs another token."""
# A token that is short by less than this counts as a whole one: sums of fractions are not exact.
_EPSILON = 1e-9
# Seconds since the epoch are floats that are a quarter of a microsecond apart today: a token promised for one
# of them might be short by the rounding, and an actor that waits for it would wake in vain.
_TICK_S = 1e-6


class RateLimit(Struct, frozen=True, gc=False):
    """The rate limit in force: attempts per second, and how many may start at once."""

    per_second: float
    burst: int

    @property
    def is_slow(self) -> bool:
        """True if tokens are so slow that an attempt is recorded before it is made."""
        return self.per_second * SLOW_TOKEN_S < 1


class Bucket(Struct, frozen=True, gc=False):
    """The `tokens` that there were at the time `at`, as recorded under the ownership `epoch`."""

    tokens: float
    at: float
    epoch: int


class Unclean(Struct, frozen=True, gc=False):
    """The last claim that followed no release: its epoch, its time, and the deliveries' last position."""

    epoch: int
    position: int
    at: float


def refill(bucket: Bucket, limit: RateLimit, now: float, epoch: int, granted: int = 0) -> Bucket:
    """The bucket at `now`.

    `granted` tokens are set aside for attempts that have not started yet. Such a token counts when its
    attempt starts, and takes up room until then: if the bucket filled up in addition, one attempt too many
    could start.
    """
    gained = max(0.0, now - bucket.at) * limit.per_second
    room = max(0.0, float(limit.burst - granted))
    return Bucket(min(room, bucket.tokens + gained), max(now, bucket.at), epoch)


def give_back(bucket: Bucket) -> Bucket:
    """The bucket after a token that was set aside and not used is returned to it."""
    return Bucket(bucket.tokens + 1, bucket.at, bucket.epoch)


def take(bucket: Bucket) -> Bucket | None:
    """The bucket with one token less, or None when there is none. `bucket` is filled up to now."""
    if bucket.tokens < 1 - _EPSILON:
        return None
    return Bucket(max(0.0, bucket.tokens - 1), bucket.at, bucket.epoch)


def next_token_at(bucket: Bucket, limit: RateLimit) -> float:
    """A time after `bucket.at` at which the bucket holds a whole token, rounding included."""
    return bucket.at + max(0.0, 1 - bucket.tokens) / limit.per_second + _TICK_S


def with_limit(
    limit: RateLimit | None, bucket: Bucket | None, *, at: float, epoch: int, unused: bool
) -> Bucket | None:
    """The bucket under another limit: a lower burst reduces it at once, a higher one adds no tokens at once.

    If there was no bucket, the new one is full only if the receiver is `unused`: nothing was ever sent to it.
    """
    if limit is None:
        return None
    if bucket is None:
        return Bucket(float(limit.burst) if unused else 0.0, at, epoch)
    return Bucket(min(bucket.tokens, float(limit.burst)), bucket.at, bucket.epoch)


def inherit(
    bucket: Bucket,
    limit: RateLimit,
    *,
    epoch: int,
    claimed_at: float,
    unclean: Unclean | None,
    unsettled: bool,
) -> Bucket:
    """The bucket that the owner of `epoch` starts with, given what an earlier owner recorded.

    `unsettled`: the actor had, or may have had, a stored event that was not settled at the last unclean
    claim. Only then can its old owner have posted something that it never recorded. An attempt that was
    recorded first may have started up to `GRANT_MAX_S` after its record, so this time is not credited either.
    """
    if bucket.epoch == epoch:
        return bucket
    if unclean and unsettled and bucket.epoch < unclean.epoch and not limit.is_slow:
        bucket = Bucket(0.0, unclean.at, unclean.epoch)
        if unclean.epoch == epoch:
            return Bucket(0.0, claimed_at, epoch)
    credit = max(0.0, claimed_at - bucket.at - CLOCK_SKEW_S - GRANT_MAX_S) * limit.per_second
    return Bucket(min(float(limit.burst), bucket.tokens + credit), claimed_at, epoch)
