"""The token bucket: real-valued, clamped, and inherited from owner to owner without ever granting too much.

Promise: in any window of t seconds at most `burst + rate·t` attempts start, takeovers included. Within one
ownership `now` never jumps (wall time at the claim plus monotonic time since). Between owners, time is
credited only beyond `CLOCK_SKEW_S`, since the clocks of two machines may differ. An owner that vanished may
have taken tokens without recording it, so the next owner starts with an empty bucket if that owner could have
posted.
"""

from collections.abc import Iterator

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


class RateLimit(Struct, frozen=True, gc=False, omit_defaults=True):
    """The rate limit in force: attempts per second, and how many may start at once.

    `others`: limits that hold as well. None of them is slower.
    """

    per_second: float
    burst: int
    others: tuple["RateLimit", ...] = ()

    @property
    def is_slow(self) -> bool:
        """True if tokens are so slow that an attempt is recorded before it is made."""
        return self.per_second * SLOW_TOKEN_S < 1


class Bucket(Struct, frozen=True, gc=False, omit_defaults=True):
    """The `tokens` that there were at the time `at`, as recorded under the ownership `epoch`.

    `others`: the tokens of the limit's others, in their order. An attempt takes one of each. A bucket that
    does not say has none of them.
    """

    tokens: float
    at: float
    epoch: int
    others: tuple[float, ...] = ()


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
    others = _others_after(bucket, limit, max(0.0, now - bucket.at), granted) if limit.others else ()
    return Bucket(min(room, bucket.tokens + gained), max(now, bucket.at), epoch, others)


def _others_after(bucket: Bucket, limit: RateLimit, elapsed_s: float, granted: int = 0) -> tuple[float, ...]:
    """The tokens of the other limits, that much later."""
    return tuple(
        min(max(0.0, float(each.burst - granted)), tokens + elapsed_s * each.per_second)
        for each, tokens in zip(limit.others, _tokens_of_others(bucket, limit), strict=True)
    )


def _tokens_of_others(bucket: Bucket, limit: RateLimit) -> tuple[float, ...]:
    """The tokens of the limit's others; a bucket of an older node does not say, so it has none of them."""
    count = len(limit.others)
    return (bucket.others + (0.0,) * count)[:count]


def give_back(bucket: Bucket) -> Bucket:
    """The bucket after a token that was set aside and not used is returned to it."""
    others = tuple(each + 1 for each in bucket.others) if bucket.others else ()
    return Bucket(bucket.tokens + 1, bucket.at, bucket.epoch, others)


def take(bucket: Bucket) -> Bucket | None:
    """The bucket with one token less, or None when there is none. `bucket` is filled up to now."""
    if bucket.tokens < 1 - _EPSILON or (bucket.others and min(bucket.others) < 1 - _EPSILON):
        return None
    others = tuple(max(0.0, each - 1) for each in bucket.others) if bucket.others else ()
    return Bucket(max(0.0, bucket.tokens - 1), bucket.at, bucket.epoch, others)


def emptied(bucket: Bucket, since: float) -> Bucket:
    """The bucket without any tokens, which gets some again from `since` on."""
    return Bucket(0.0, max(since, bucket.at), bucket.epoch)


def next_token_at(bucket: Bucket, limit: RateLimit) -> float:
    """A time after `bucket.at` at which the bucket holds a whole token, rounding included."""
    wait_s = max(0.0, 1 - bucket.tokens) / limit.per_second
    for each, tokens in zip(limit.others, _tokens_of_others(bucket, limit), strict=True):
        wait_s = max(wait_s, (1 - tokens) / each.per_second)
    return bucket.at + wait_s + _TICK_S


def with_limit(
    limit: RateLimit | None,
    bucket: Bucket | None,
    *,
    before: RateLimit | None,
    at: float,
    epoch: int,
    unused: bool,
) -> Bucket | None:
    """The bucket under another limit than `before`: a lower burst cuts it at once, a higher adds no tokens.

    If there was no bucket, the new one is full only if the receiver is `unused`: nothing was ever sent to it.
    A limit that is added to others begins without a token.
    """
    if limit is None:
        return None
    if bucket is None or before is None:
        bursts = tuple(float(each.burst) for each in limit.others)
        return Bucket(float(limit.burst), at, epoch, bursts) if unused else Bucket(0.0, at, epoch)
    tokens, *others = _carried(before, bucket, limit)
    return Bucket(tokens, bucket.at, bucket.epoch, tuple(others))


def _carried(before: RateLimit, bucket: Bucket, limit: RateLimit) -> Iterator[float]:
    """Yield the tokens of each limit that holds from now on.

    Each has no more than the limit that had its place, and no more than it had itself, whatever its place
    was. It is known by its rate; one whose rate is another has no more than any of those before.
    """
    known = [before.per_second, *(each.per_second for each in before.others)]
    tokens = [bucket.tokens, *_tokens_of_others(bucket, before)]
    for place, each in enumerate((limit, *limit.others)):
        own = [has for rate, has in zip(known, tokens, strict=True) if rate == each.per_second]
        had = tokens[place] if place < len(tokens) else 0.0
        yield min([float(each.burst), had, *(own or tokens)])


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
    credited_s = max(0.0, claimed_at - bucket.at - CLOCK_SKEW_S - GRANT_MAX_S)
    tokens = min(float(limit.burst), bucket.tokens + credited_s * limit.per_second)
    return Bucket(tokens, claimed_at, epoch, _others_after(bucket, limit, credited_s))
