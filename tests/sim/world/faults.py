"""Faults between the processes and the server, and how often they happen."""

from math import exp, log
from random import Random

from msgspec import Struct
from msgspec.structs import replace


class Faults(Struct, frozen=True, kw_only=True):
    """Chances are between 0 and 1; `…_every_s` is the mean time between two, 0 means never.

    `hiccup`: a frame, and with it all that follow, is held up for as long as `hiccup_s`.
    `cut_request`: the connection breaks when a frame reaches the server, which never sees it.
    `cut_answer`: it breaks when the server has dealt with a frame, whose answer is lost.
    `notice_s`: an end of a connection that broke finds out within this.
    `lost`: a delivery of a consumer, or an unrequested message, is counted as sent and never is.
    `lag`: a direct get is answered by a replica that is up to `lag_changes` behind.
    `deposed_every_s`: a stream gets another leader, and the old one answers, too, for up to `deposed_s`: as
    probably as `deposed`, by what it knew then.
    `conflict`: a publish under an expectation, or with a message id, is told that another is in process.
    `forgetful`: a restarted server has lost what its consumers did in the last moment.
    """

    latency_s: float = 200e-6
    hiccup: float = 0.0
    hiccup_s: float = 0.0
    cut_request: float = 0.0
    cut_answer: float = 0.0
    cut_every_s: float = 0.0
    notice_s: float = 0.01
    lost: float = 0.0
    lag: float = 0.0
    lag_changes: int = 0
    conflict: float = 0.0
    restart_every_s: float = 0.0
    away_s: float = 0.0
    forgetful: float = 0.0
    leaderless_every_s: float = 0.0
    leaderless_s: float = 0.0
    deposed_every_s: float = 0.0
    deposed_s: float = 0.0
    deposed: float = 0.0


CALM = Faults()

DEPOSED_MAX_S = 12.0
"""Time for which nats-server 2.15.1 answers for a stream that it leads no more."""


def draw(chance: Random, *, clustered: bool) -> Faults:
    """Swarm testing: each kind of fault is there or not, and if so, rare or frequent.

    Without a cluster nothing lags, no leader is missing and no message is in process elsewhere.
    """

    def maybe(low: float, high: float) -> float:
        return _between(chance, low, high) if chance.random() < 0.5 else 0.0

    def in_cluster(low: float, high: float) -> float:
        drawn = maybe(low, high)
        return drawn if clustered else 0.0

    return Faults(
        latency_s=_between(chance, 50e-6, 5e-3),
        hiccup=maybe(1e-4, 2e-2),
        hiccup_s=_between(chance, 0.01, 3.0),
        cut_request=maybe(1e-4, 1e-2),
        cut_answer=maybe(1e-4, 1e-2),
        cut_every_s=maybe(0.5, 30.0),
        notice_s=_between(chance, 1e-3, 10.0),
        lost=maybe(1e-4, 3e-2),
        lag=in_cluster(0.01, 0.5),
        lag_changes=chance.randint(1, 20),
        conflict=in_cluster(1e-3, 5e-2),
        restart_every_s=maybe(2.0, 60.0),
        away_s=_between(chance, 0.05, 20.0),
        forgetful=maybe(0.1, 1.0),
        leaderless_every_s=in_cluster(2.0, 60.0),
        leaderless_s=_between(chance, 0.05, 6.0),
    )


def with_deposed(faults: Faults, chance: Random, clustered: bool) -> Faults:
    """Returns these faults, and perhaps leaders that do not know that they are deposed."""
    if not clustered or chance.random() < 0.5:
        return faults
    return replace(
        faults,
        deposed_every_s=_between(chance, 1.0, 30.0),
        deposed_s=_between(chance, 0.5, DEPOSED_MAX_S),
        deposed=chance.choice((0.1, 0.5, 0.9)),
    )


def _between(chance: Random, low: float, high: float) -> float:
    """Draws by orders of magnitude: as often near the low end as near the high one."""
    return exp(chance.uniform(log(low), log(high)))
