"""The token bucket: real-valued, clamped, and inherited from owner to owner without ever granting too much.

Promise: in any window of t seconds at most `burst + rate·t` attempts start, takeovers included. Within one
ownership `now` never jumps (wall time at the claim plus monotonic time since). Between owners time is
credited only beyond `CLOCK_SKEW_S`, since two machines' clocks may differ; and an owner that vanished may
have taken tokens that it never recorded, so the next owner starts empty if it could have posted.
"""

from msgspec import Struct

CLOCK_SKEW_S = 300.0
"""Largest difference of two owners' clocks: time between them counts only beyond that."""
SLOW_TOKEN_S = 10.0
"""A token that takes longer to come is recorded before its attempt is made."""
GRANT_MAX_S = 5.0
"""An attempt that is recorded before it is made starts within this time, or needs another token."""
# A token that is short by less than this is a token: sums of fractions do not come out even.
_EPSILON = 1e-9
# Instants of our days are floats a quarter of a microsecond apart: a token said to come at one of them might
# be short by what was rounded, and an actor that waits for it would wake in vain.
_TICK_S = 1e-6


class Limit(Struct, frozen=True, gc=False):
    """The rate in force: attempts a second, and how many may start at once."""

    per_second: float
    burst: int

    @property
    def slow(self) -> bool:
        """True if tokens are so slow that an attempt is recorded before it is made."""
        return self.per_second * SLOW_TOKEN_S < 1


class Bucket(Struct, frozen=True, gc=False):
    """`tokens` at the instant `at`, recorded under the ownership `epoch`."""

    tokens: float
    at: float
    epoch: int


class Unclean(Struct, frozen=True, gc=False):
    """The last claim that followed no release: its epoch, the deliveries' last position then, its time."""

    epoch: int
    position: int
    at: float


def refill(bucket: Bucket, limit: Limit, now: float, epoch: int, granted: int = 0) -> Bucket:
    """The bucket at `now`.

    `granted` tokens are set aside for attempts that have not started yet. They count where the attempts
    start, so until then they take up room: with them a full bucket would allow one start too many.
    """
    gained = max(0.0, now - bucket.at) * limit.per_second
    room = max(0.0, float(limit.burst - granted))
    return Bucket(min(room, bucket.tokens + gained), max(now, bucket.at), epoch)


def give_back(bucket: Bucket) -> Bucket:
    """The bucket with a token that was set aside and not used."""
    return Bucket(bucket.tokens + 1, bucket.at, bucket.epoch)


def take(bucket: Bucket) -> Bucket | None:
    """The bucket with one token less, or None when there is none. `bucket` is filled up to now."""
    if bucket.tokens < 1 - _EPSILON:
        return None
    return Bucket(max(0.0, bucket.tokens - 1), bucket.at, bucket.epoch)


def next_token_at(bucket: Bucket, limit: Limit) -> float:
    """An instant after `bucket.at` at which the bucket holds a whole token, rounding included."""
    return bucket.at + max(0.0, 1 - bucket.tokens) / limit.per_second + _TICK_S


def under(
    limit: Limit | None, bucket: Bucket | None, *, at: float, epoch: int, unused: bool
) -> Bucket | None:
    """The bucket under another limit: a lower burst cuts it at once, a higher one grants nothing at once.

    Where there was none, it is full only if the receiver is `unused`: nothing was ever sent to it.
    """
    if limit is None:
        return None
    if bucket is None:
        return Bucket(float(limit.burst) if unused else 0.0, at, epoch)
    return Bucket(min(bucket.tokens, float(limit.burst)), bucket.at, bucket.epoch)


def inherit(
    bucket: Bucket, limit: Limit, *, epoch: int, claimed_at: float, unclean: Unclean | None, unsettled: bool
) -> Bucket:
    """The bucket that the owner of `epoch` starts with, given what an earlier owner recorded.

    `unsettled` says that the actor had, or may have had, an event stored and not settled at the last unclean
    claim: only then can its old owner have posted what it never recorded. An attempt that was recorded first
    may have started up to `GRANT_MAX_S` after its record, so that much more is not credited.
    """
    if bucket.epoch == epoch:
        return bucket
    if unclean and unsettled and bucket.epoch < unclean.epoch and not limit.slow:
        bucket = Bucket(0.0, unclean.at, unclean.epoch)
        if unclean.epoch == epoch:
            return Bucket(0.0, claimed_at, epoch)
    credit = max(0.0, claimed_at - bucket.at - CLOCK_SKEW_S - GRANT_MAX_S) * limit.per_second
    return Bucket(min(float(limit.burst), bucket.tokens + credit), claimed_at, epoch)
