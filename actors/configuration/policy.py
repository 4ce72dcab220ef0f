"""A receiver's configuration: its members, their types, bounds and defaults."""

import math
from datetime import datetime
from functools import lru_cache
from typing import Annotated, Literal

from msgspec import Meta, Struct, field
from msgspec.structs import asdict, replace

from actors.configuration.custom_signature import CustomSignature
from actors.configuration.transform import Transform

AGE_MAX_S = 432000.0
"""The longest time that any configuration lets an event wait."""
SECONDS = {"second": 1.0, "minute": 60.0, "hour": 3600.0}
BURST_MAX = 1_000_000
RATES_MAX = 4
"""Rate limits of one receiver that hold together."""
# Products of fractions are not exact: 0.9 of 10 is a little less than 9.
_EPSILON = 1e-9
DEFAULT_PROXY = "default"
"""The proxy of receivers that name none: the profile of that name, or no proxy where there is none."""
_NO_HEADERS: dict[str, str] = {}
"""The headers of all policies without any; no policy is ever changed."""


class Rate(Struct, frozen=True, kw_only=True, gc=False):
    """A rate limit: `limit` attempts per `per`, at most `burst` at once (by default one second's worth).

    `margin`: the share of both that is used, for a receiver that counts in another way.
    """

    limit: Annotated[float, Meta(ge=1e-6, le=1e6)]
    per: Literal["second", "minute", "hour"] = "second"
    burst: Annotated[int, Meta(ge=1, le=BURST_MAX)] | None = None
    margin: Annotated[float, Meta(ge=0.1, le=1)] = 1.0

    @property
    def per_second(self) -> float:
        """Tokens per second."""
        return self.limit * self.margin / SECONDS[self.per]

    @property
    def per_minute(self) -> int:
        """Whole tokens per minute: 123 for 123 a minute, although 60 times 2.05 are a little less."""
        return math.floor(self.per_second * 60 + _EPSILON)

    @property
    def burst_max(self) -> int:
        """The number of attempts that may start at once."""
        burst = self.burst or math.ceil(self.limit / SECONDS[self.per])
        return max(1, math.floor(burst * self.margin + _EPSILON))


def several(rates: tuple[Rate, ...]) -> tuple[Rate, ...]:
    """Rates that hold together: without a burst of its own, each allows a tenth of its limit at once.

    One second's worth of a limit per hour would be a single attempt, and hide the shorter limits.
    """
    if len(rates) < 2:
        return rates
    return tuple(replace(each, burst=each.burst or _tenth(each)) for each in rates)


def _tenth(rate: Rate) -> int:
    return min(BURST_MAX, max(math.ceil(rate.limit / SECONDS[rate.per]), math.ceil(rate.limit / 10)))


class Retry(Struct, frozen=True, kw_only=True, gc=False):
    """The rules for retrying a failed delivery, and for giving it up."""

    base_s: Annotated[float, Meta(ge=0.05, le=86400)] = 2
    cap_s: Annotated[float, Meta(ge=0.05, le=432000)] = 3600
    max_age_s: Annotated[float, Meta(ge=60, le=AGE_MAX_S)] = 172800
    max_attempts: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    rejected_attempts: Annotated[int, Meta(ge=1, le=1000)] = 5


class Offline(Struct, frozen=True, kw_only=True, gc=False):
    """Times without a success after which a receiver counts as offline, and as disabled.

    - `ping`: while it is offline, it gets pings in place of events.
    """

    after_s: Annotated[float, Meta(ge=1, le=864000)] = 300
    ping: bool = False
    disable_after_s: Annotated[float, Meta(ge=60, le=8640000)] = 432000


class BatchLimits(Struct, frozen=True, kw_only=True, gc=False):
    """The limits of one POST that has several events, in order.

    - `max_bytes`: of the bodies as published; one event goes however large it is.
    - `linger_s`: how long a POST waits for more events, from when the oldest was stored.
    """

    max_events: Annotated[int, Meta(ge=1, le=256)] = 100
    max_bytes: Annotated[int, Meta(ge=1, le=1 << 20)] = 262_144
    linger_s: Annotated[float, Meta(ge=0, le=60)] = 0.0


class Adaptive(Struct, frozen=True, kw_only=True, gc=False):
    """The ways in which a receiver's pace adapts to what it can take; none ever exceeds its rate.

    - `headers`: what its answers say about its limits counts.
    - `after_429`: each 429 halves the rate, which then grows back.
    - `concurrency`: in relaxed order, refusals halve the number of attempts in flight, which then grows back.
    - `smart`: the rate follows refusals and latencies.
    - `rate_min`, `rate_max`: bounds of a learnt rate, in attempts per second; None: only the rate.
    """

    headers: bool = True
    after_429: bool = True
    concurrency: bool = False
    smart: bool = False
    rate_min: Annotated[float, Meta(ge=0.001, le=1e6)] = 0.1
    rate_max: Annotated[float, Meta(ge=0.001, le=1e6)] | None = None


USUALLY_ADAPTIVE = Adaptive()


class AlertSettings(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """The limits of alerts about a receiver that a person has set; None: not set."""

    failing_after_s: Annotated[float, Meta(ge=1, le=864000)] | None = None
    behind_percent: Annotated[int, Meta(ge=1, le=100)] | None = None
    behind_after_s: Annotated[float, Meta(ge=1, le=AGE_MAX_S)] | None = None
    dead_letters_quiet_s: Annotated[float, Meta(ge=1, le=864000)] | None = None
    interval_s: Annotated[float, Meta(ge=1, le=864000)] | None = None


class AlertLimits(Struct, frozen=True, kw_only=True, gc=False):
    """The limits of alerts about a receiver.

    - `failing_after_s`: time without a success after which it is failing.
    - `behind_percent`, `behind_after_s`: it is behind if that share of its `backlog_max` waits, or its
      oldest event is that old; it no longer is once both are below half.
    - `dead_letters_quiet_s`: time without another dead letter after which the alert about them is over.
    - `interval_s`: time from one alert to the next of the same kind, at least.
    """

    failing_after_s: float = 60
    behind_percent: int = 80
    behind_after_s: float = 3600
    dead_letters_quiet_s: float = 3600
    interval_s: float = 300


USUAL_LIMITS = AlertLimits()
NO_ALERT_SETTINGS = AlertSettings()


@lru_cache(maxsize=256)
def alert_limits(*settings: AlertSettings) -> AlertLimits:
    """The limits by these settings: for each limit, the first that sets it decides.

    Cached: most receivers have the same.
    """
    found = USUAL_LIMITS
    for each in reversed(settings):
        found = replace(found, **{name: value for name, value in asdict(each).items() if value is not None})
    return found


def is_admitted(region: str, regions: tuple[str, ...]) -> bool:
    """True if an event of that region goes to these: one without a region does, and none means all."""
    return not region or not regions or region in regions


class OldSecret(Struct, frozen=True, kw_only=True, gc=False):
    """A secret that signs in addition to the newer ones, until a given time. Its repr shows nothing."""

    secret: str
    until: Annotated[datetime, Meta(tz=True)]

    def __repr__(self) -> str:
        return "OldSecret(…)"


class Policy(Struct, frozen=True, kw_only=True, gc=False):
    """One receiver's configuration with all defaults filled in. Its repr shows nothing: it holds secrets."""

    url: Annotated[str, Meta(min_length=1, max_length=4096)]
    events: tuple[str, ...] = (">",)
    secrets: tuple[str, ...] = ()
    old_secrets: tuple[OldSecret, ...] = ()
    order: Literal["strict", "relaxed"] = "strict"
    rates: tuple[Rate, ...] = field(default=(), name="rate")
    concurrency: Annotated[int, Meta(ge=1, le=256)] = 8
    batch: BatchLimits | None = None
    timeout_s: Annotated[float, Meta(ge=0.1, le=60)] = 15
    retry: Retry = Retry()
    offline: Offline = Offline()
    dedup_window: Annotated[int, Meta(ge=16, le=4096)] = 256
    backlog_max: Annotated[int, Meta(ge=1)] = 1_000_000
    headers: dict[str, str] = field(default_factory=lambda: _NO_HEADERS)
    format: Literal["raw", "envelope", "cloudevents", "cloudevents-structured"] = "raw"
    signature: CustomSignature | None = None
    transform: Transform | None = None
    pseudonym_key: str | None = None
    handshake: Literal["none", "hmac", "cloudevents"] = "none"
    proxy: str | None = DEFAULT_PROXY
    tls: str | None = None
    filter: Annotated[str, Meta(min_length=1)] | None = None
    region: tuple[str, ...] = ()
    adaptive: Adaptive = USUALLY_ADAPTIVE
    paused: bool = False
    alerts: AlertSettings = NO_ALERT_SETTINGS

    def __repr__(self) -> str:
        return "Policy(…)"

    @property
    def rate(self) -> Rate | None:
        """The slowest of its rate limits; None if it has none."""
        if len(self.rates) > 1:
            return min(self.rates, key=lambda each: each.per_second)
        return self.rates[0] if self.rates else None

    def admits(self, region: str) -> bool:
        """True if events of that region may be sent."""
        return is_admitted(region, self.region)
