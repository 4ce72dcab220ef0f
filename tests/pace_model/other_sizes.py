"""Plants of other sizes: slower, faster, noisier, with longer windows. No number was tuned on them."""

from collections.abc import Sequence

from actors.machine.bucket import RateLimit
from tests.pace_model.cases import Case
from tests.pace_model.receivers import ContendedService, HiddenLimit, WorkerPool
from tests.pace_model.sender import SenderProfile

WIDE = SenderProfile(rate=RateLimit(400.0, 40), concurrency=128)


def worker_case(name: str, number: int, service_s: float, noise: float = 0.0, waiting_max: int = 32) -> Case:
    """A queue with workers, all of them busy at best."""
    return Case(
        name,
        lambda timeline, rng, _: WorkerPool(
            timeline, rng, workers=number, service_s=service_s, waiting_max=waiting_max, noise=noise
        ),
        lambda plant, second: number / service_s, WIDE,
    )  # fmt: skip


def limit_case(name: str, limits: Sequence[tuple[int, float]], senders: int = 1) -> Case:
    """A hidden limit, of which nothing is left unused at best."""
    return Case(
        name, lambda timeline, rng, _: HiddenLimit(timeline, limits=limits, service_s=0.1),
        lambda plant, second: min(WIDE.rate.per_second, *(limit / window_s for limit, window_s in limits)),
        WIDE, senders,
    )  # fmt: skip


def contention_case(name: str, service_s: float, sigma: float, kappa: float) -> Case:
    """A service whose requests slow each other down, with as many of them as it does best with."""
    return Case(
        name,
        lambda timeline, rng, _: ContendedService(timeline, service_s=service_s, sigma=sigma, kappa=kappa),
        lambda plant, second: plant.best if isinstance(plant, ContendedService) else 0.0, WIDE,
    )  # fmt: skip


OTHER_SIZES = (
    worker_case("2 a second", 2, 1.0, waiting_max=16),
    worker_case("200 a second", 4, 0.02, waiting_max=64),
    limit_case("429, 3 a second", [(3, 1.0)]),
    limit_case("429, 100 a second", [(100, 1.0)]),
    limit_case("429, 50 in 10 s", [(50, 10.0)]),
    limit_case("429, 60 a minute", [(60, 60.0)]),
    contention_case("contention, slow", 0.5, 0.05, 0.02),
    contention_case("contention, wide", 0.1, 0.0, 0.001),
    worker_case("noise, slow", 4, 0.5, noise=1.0),
    worker_case("noise, heavy", 16, 0.4, noise=1.5),
    Case(
        "autoscaler, thrice",
        lambda timeline, rng, _: WorkerPool(
            timeline, rng, workers=4, service_s=0.2, waiting_max=32, scales_to=32
        ),
        lambda plant, second: 20 * 2 ** min(second // 60, 3), WIDE, doubles=True,
    ),
    limit_case("shared 429, 5 a second", [(5, 1.0)], senders=2),
    limit_case("no limit", [(10**6, 1.0)]),
)  # fmt: skip
"""The last one takes all that the configured rate allows."""
