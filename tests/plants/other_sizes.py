"""Plants of other sizes: slower, faster, noisier, with longer windows. No number was tuned on them."""

from collections.abc import Sequence

from actors.machine.bucket import RateLimit
from tests.plants.cases import Case
from tests.plants.receivers import Contended, Limited, Workers
from tests.plants.sender import Profile

WIDE = Profile(rate=RateLimit(400.0, 40), concurrency=128)


def workers(name: str, number: int, service_s: float, noise: float = 0.0, waiting_max: int = 32) -> Case:
    """A queue with workers, all of them busy at best."""
    return Case(
        name,
        lambda timeline, rng, _: Workers(
            timeline, rng, workers=number, service_s=service_s, waiting_max=waiting_max, noise=noise
        ),
        lambda plant, second: number / service_s, WIDE,
    )  # fmt: skip


def limited(name: str, limits: Sequence[tuple[int, float]], senders: int = 1) -> Case:
    """A hidden limit, of which nothing is left unused at best."""
    return Case(
        name, lambda timeline, rng, _: Limited(timeline, limits=limits, service_s=0.1),
        lambda plant, second: min(WIDE.rate.per_second, *(limit / window_s for limit, window_s in limits)),
        WIDE, senders,
    )  # fmt: skip


def contended(name: str, service_s: float, sigma: float, kappa: float) -> Case:
    """A service whose requests slow each other down, with as many of them as it does best with."""
    return Case(
        name,
        lambda timeline, rng, _: Contended(timeline, service_s=service_s, sigma=sigma, kappa=kappa),
        lambda plant, second: plant.best if isinstance(plant, Contended) else 0.0, WIDE,
    )  # fmt: skip


OTHER_SIZES = (
    workers("2 a second", 2, 1.0, waiting_max=16),
    workers("200 a second", 4, 0.02, waiting_max=64),
    limited("429, 3 a second", [(3, 1.0)]),
    limited("429, 100 a second", [(100, 1.0)]),
    limited("429, 50 in 10 s", [(50, 10.0)]),
    limited("429, 60 a minute", [(60, 60.0)]),
    contended("contention, slow", 0.5, 0.05, 0.02),
    contended("contention, wide", 0.1, 0.0, 0.001),
    workers("noise, slow", 4, 0.5, noise=1.0),
    workers("noise, heavy", 16, 0.4, noise=1.5),
    Case(
        "autoscaler, thrice",
        lambda timeline, rng, _: Workers(
            timeline, rng, workers=4, service_s=0.2, waiting_max=32, scales_to=32
        ),
        lambda plant, second: 20 * 2 ** min(second // 60, 3), WIDE, doubles=True,
    ),
    limited("shared 429, 5 a second", [(5, 1.0)], senders=2),
    limited("no limit", [(10**6, 1.0)]),
)  # fmt: skip
"""The last one takes all that the configured rate allows."""
