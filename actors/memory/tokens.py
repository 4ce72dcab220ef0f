"""The tokens of one receiver in memory: its bucket, and the tokens that are set aside.

An attempt that is recorded before it is made takes its token first, which is set aside until the attempt
starts. If that takes too long, the token is given back, and the attempt needs another one.
"""

from actors.machine.bucket import GRANT_MAX_S, Bucket, RateLimit, give_back, refill, take


class Tokens:
    """The bucket of one receiver under its limit, or None if it has no limit.

    - `granted_position`: that of the event whose attempt was recorded at `granted_at` and is not made yet.
    - `set_aside`: number of tokens of such attempts, pings included.
    """

    __slots__ = ("bucket", "granted_at", "granted_position", "limit", "set_aside")

    def __init__(self) -> None:
        self.limit: RateLimit | None = None
        self.bucket: Bucket | None = None
        self.granted_position = 0
        self.granted_at = 0.0
        self.set_aside = 0

    def restore(self, limit: RateLimit | None, bucket: Bucket | None) -> None:
        """Continue with that limit and that bucket."""
        self.limit, self.bucket = limit, bucket

    def filled(self, now: float, epoch: int) -> Bucket | None:
        """The bucket, filled up to now; None if there is no limit."""
        if self.bucket is None or self.limit is None:
            return None
        self.bucket = refill(self.bucket, self.limit, now, epoch, self.set_aside)
        return self.bucket

    def take(self, now: float, epoch: int) -> None:
        """Take a token for an attempt; the caller knows that there is one."""
        if (bucket := self.filled(now, epoch)) is not None:
            # None would mean no limit at all.
            self.bucket = take(bucket) or Bucket(0.0, bucket.at, bucket.epoch)

    def keep_one(self) -> None:
        """Keep one token at most: under a learnt rate attempts come evenly, and after it no burst comes."""
        bucket = self.bucket
        if bucket is not None and bucket.tokens > 1:
            self.bucket = Bucket(1.0, bucket.at, bucket.epoch, bucket.others)

    def grant(self, position: int, now: float) -> None:
        """Set the token that was just taken aside for the event at `position`."""
        self.granted_position, self.granted_at = position, now
        self.set_aside += 1

    @property
    def lapsed_at(self) -> float:
        """The time after which the recorded attempt may not start any more."""
        return self.granted_at + GRANT_MAX_S

    def end_grant(self, now: float, epoch: int, *, used: bool) -> None:
        """End the wait of the recorded attempt, if there is one: it starts now, or gives its token back."""
        if self.granted_position:
            self.granted_position = 0
            self.start_or_give_back(now, epoch, used=used)

    def start_or_give_back(self, now: float, epoch: int, *, used: bool) -> None:
        """Take one token out of those set aside: it is used, or given back."""
        bucket = self.filled(now, epoch)
        self.set_aside -= 1
        if bucket is not None and not used:
            self.bucket = give_back(bucket)
