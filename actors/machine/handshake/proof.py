"""Proof: whether a receiver has proved itself under its configuration, and the rate that it allowed.

A handshake is about a key, a hash of its kind, the URL and the secrets. So another URL or secret needs
another handshake, under any owner, and no fact has to say that the old one does not count any more.
"""

import math
from functools import lru_cache

from actors.configuration.policy import OldSecret, Policy
from actors.ids import stable_hash
from actors.machine.bucket import RateLimit
from actors.machine.state import Handshake, State

KEY_BYTES = 20
"""Length of a key. A person who configures a receiver chooses the URL and secrets, and with 8 bytes could
find two texts with the same key; then the proof of one URL would count for another."""
KEYS_KEPT_MAX = 4096
"""Keys that are kept: each step of a receiver with a handshake needs its key."""


def handshake_key(policy: Policy) -> str:
    """The key of the handshake that the configuration asks for."""
    return key_of(policy.handshake, policy.url, policy.secrets, policy.old_secrets)


@lru_cache(maxsize=KEYS_KEPT_MAX)
def key_of(kind: str, url: str, secrets: tuple[str, ...], old_secrets: tuple[OldSecret, ...]) -> str:
    """The key of a handshake, from what it proves: kind, URL, secrets."""
    return stable_hash(
        "\n".join([kind, url, *secrets, "", *(each.secret for each in old_secrets)]), KEY_BYTES
    )


def is_verified(state: State, policy: Policy) -> bool:
    """True if events may be sent: no handshake is asked for, or the receiver has passed it."""
    if policy.handshake == "none":
        return True
    known = current_handshake(state, policy)
    return known is not None and known.verified


def current_handshake(state: State, policy: Policy) -> Handshake | None:
    """The handshake that the configuration asks for, as far as it is known; None if none was begun."""
    known = state.handshake
    return known if known is not None and known.key == handshake_key(policy) else None


def next_handshake_at(state: State, policy: Policy) -> float:
    """The time before which no handshake begins, because of its own failures."""
    known = current_handshake(state, policy)
    return 0.0 if known is None else known.next_at


def limit_in_force(policy: Policy, known: Handshake | None) -> RateLimit | None:
    """The rate limit of the configuration, lowered to what the receiver allowed in its handshake.

    It allowed a number of requests in a minute. A burst and a minute of tokens together stay within it; if a
    minute of tokens alone is that many, they come evenly.
    """
    limit = _limit(policy)
    per_minute = known.per_minute if known is not None else None
    if per_minute is None or known is None or not known.verified or known.key != handshake_key(policy):
        return limit
    if limit is None:
        return RateLimit(per_minute / 60, 1)
    per_second = min(limit.per_second, per_minute / 60)
    room = math.floor(per_minute - 60 * per_second)
    return RateLimit(per_second, max(1, min(limit.burst, room)), limit.others)


def _limit(policy: Policy) -> RateLimit | None:
    """The rate limit of the configuration: the slowest of its rates, and the others that hold as well."""
    rate = policy.rate
    if rate is None:
        return None
    others = tuple(RateLimit(each.per_second, each.burst_max) for each in policy.rates if each is not rate)
    return RateLimit(rate.per_second, rate.burst_max, others)
