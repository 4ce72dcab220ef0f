"""The plants on which rules are tried, and the oracle: what each could deliver in each second at best."""

from collections.abc import Callable, Sequence
from random import Random

from msgspec import Struct

from tests.pace_model.receivers import (
    UNAVAILABLE,
    ContendedService,
    FaultyReceiver,
    HiddenLimit,
    Plant,
    WorkerPool,
)
from tests.pace_model.sender import SenderProfile
from tests.pace_model.timeline import Timeline

OUTAGE = (200.0, 10.0)
"""Beginning and length of an outage."""
DOUBLES_AT_S = 300.0
"""When a hidden limit doubles."""
STRICT = SenderProfile(strict=True)
WIDE = SenderProfile(concurrency=256)


class Case(Struct, frozen=True):
    """A plant, and the senders that share it.

    - `build`: makes it from timeline, chance, and the length of the trial.
    - `best`: deliveries in a second, if all is known about the plant.
    - `doubles`: its capacity becomes higher; `tells`: its answers have rate headers.
    """

    name: str
    build: Callable[[Timeline, Random, int], Plant]
    best: Callable[[Plant, int], float]
    profile: SenderProfile = SenderProfile()
    senders: int = 1
    doubles: bool = False
    tells: bool = False


def random_pauses(rng: Random, length_s: int) -> list[tuple[float, float]]:
    """Pauses of a garbage collector: 1 to 2 s, each after 10 to 30 s."""
    at, found = rng.uniform(5, 20), list[tuple[float, float]]()
    while at < length_s:
        found.append((at, rng.uniform(1.0, 2.0)))
        at += found[-1][1] + rng.uniform(10, 30)
    return found


def best_when_scaled(start: float, *, until: int) -> Callable[[Plant, int], float]:
    """The capacity of an autoscaler that was busy from the beginning, and doubles each minute."""
    return lambda plant, second: start * 2 ** min(second // 60, until)


def best_without_pauses(full: float) -> Callable[[Plant, int], float]:
    """The capacity that the pauses of the plant leave in each second."""

    def best(plant: Plant, second: int) -> float:
        lost: Sequence[tuple[float, float]] = plant.pauses if isinstance(plant, WorkerPool) else ()
        paused_s = sum(max(0.0, min(second + 1, at + length) - max(second, at)) for at, length in lost)
        return full * (1 - paused_s)

    return best


def best_except_in_outage(full: float) -> Callable[[Plant, int], float]:
    """The capacity of a plant that delivers nothing while it is down."""
    return lambda plant, second: 0.0 if OUTAGE[0] <= second < sum(OUTAGE) else full


def _best_contended(plant: Plant, second: int) -> float:
    return plant.best if isinstance(plant, ContendedService) else 0.0


def _four_workers(timeline: Timeline, rng: Random, length_s: int) -> WorkerPool:
    return WorkerPool(timeline, rng, workers=4, service_s=0.1, waiting_max=32)


def _with_errors_and_outage(timeline: Timeline, rng: Random, length_s: int) -> FaultyReceiver:
    return FaultyReceiver(timeline, rng, _four_workers(timeline, rng, length_s), share=0.1, outages=[OUTAGE])


def _with_maintenance(timeline: Timeline, rng: Random, length_s: int) -> FaultyReceiver:
    plant = _four_workers(timeline, rng, length_s)
    return FaultyReceiver(timeline, rng, plant, share=0.0, outages=[OUTAGE], status=UNAVAILABLE)


CASES = (
    Case("queue", _four_workers, lambda plant, second: 40),
    Case(
        "deep queue", lambda timeline, rng, _: WorkerPool(timeline, rng, workers=1, service_s=0.1),
        lambda plant, second: 10, WIDE,
    ),
    Case(
        "autoscaler",
        lambda timeline, rng, _: WorkerPool(
            timeline, rng, workers=2, service_s=0.1, waiting_max=32, scales_to=8
        ),
        best_when_scaled(20, until=2), doubles=True,
    ),
    Case(
        "429 a second", lambda timeline, rng, _: HiddenLimit(timeline, limits=[(20, 1.0)], service_s=0.05),
        lambda plant, second: 20,
    ),
    Case(
        "429 strict", lambda timeline, rng, _: HiddenLimit(timeline, limits=[(10, 1.0)], service_s=0.02),
        lambda plant, second: 10, STRICT,
    ),
    Case(
        "429 doubles",
        lambda timeline, rng, _: HiddenLimit(
            timeline, limits=[(20, 1.0)], service_s=0.05, doubles_at=DOUBLES_AT_S
        ),
        lambda plant, second: 20 if second < DOUBLES_AT_S else 40, doubles=True,
    ),
    Case(
        "429 a minute", lambda timeline, rng, _: HiddenLimit(timeline, limits=[(600, 60.0)], service_s=0.05),
        lambda plant, second: 10,
    ),
    Case(
        "429 tells",
        lambda timeline, rng, _: HiddenLimit(
            timeline, limits=[(20, 1.0), (600, 60.0)], service_s=0.05, tells=True
        ),
        lambda plant, second: 10, tells=True,
    ),
    Case(
        "contention",
        lambda timeline, rng, _: ContendedService(timeline, service_s=0.1, sigma=0.02, kappa=0.004),
        _best_contended,
    ),
    Case(
        "pauses",
        lambda timeline, rng, length_s: WorkerPool(
            timeline, rng, workers=4, service_s=0.1, waiting_max=64, pauses=random_pauses(rng, length_s)
        ),
        best_without_pauses(40),
    ),
    Case(
        "noise",
        lambda timeline, rng, _: WorkerPool(
            timeline, rng, workers=8, service_s=0.2, waiting_max=32, noise=1.0
        ),
        lambda plant, second: 40,
    ),
    Case("faults", _with_errors_and_outage, best_except_in_outage(40)),
    Case("maintenance", _with_maintenance, best_except_in_outage(40)),
    Case("shared queue", _four_workers, lambda plant, second: 40, senders=2),
    Case(
        "shared 429", lambda timeline, rng, _: HiddenLimit(timeline, limits=[(20, 1.0)], service_s=0.05),
        lambda plant, second: 20, senders=2,
    ),
)  # fmt: skip
