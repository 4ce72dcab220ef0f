"""Jobs and erasures in a simulated world: some seeds, and rules whose absence a run has to find."""

import pytest

from tests.sim.hunt import violation
from tests.sim.mutants import catalogue
from tests.sim.resending.mutants import RESENDING_MUTANTS
from tests.sim.resending.resending_run import ResendingRun
from tests.sim.world.world import RunFailed

SEEDS = 8
SEEDS_MAX = 60
"""After a change of the product other seeds find a mutant: then the runs up to this one are made."""
IN_RUNS = [mutant.name for mutant in RESENDING_MUTANTS if mutant.scenario is None]
KNOWN = {"replay-position-ahead": 23, "letters-kept": 4}


@pytest.mark.parametrize("seed", range(1, SEEDS))
def test_each_event_is_sent_again_once_and_what_is_erased_never(seed: int) -> None:
    assert not violation(seed, resending=True)


@pytest.mark.parametrize("name", IN_RUNS)
def test_a_rule_that_is_taken_out_is_missed(name: str) -> None:
    with catalogue.BY_NAME[name]():
        assert any(_fails(seed) for seed in (KNOWN[name], *range(1, SEEDS_MAX)))


def _fails(seed: int) -> bool:
    try:
        ResendingRun(seed).run()
    except RunFailed:
        return True
    return False


def test_runs_have_jobs_and_erasures() -> None:
    """Otherwise they would not be judged. Few runs are needed; after a change of the product, others."""
    replays = redrives = erased = 0
    for seed in (7, 4, *range(8, 60)):
        if min(replays, redrives, erased) > 3:
            break
        run = ResendingRun(seed)
        run.run()
        replays += len(run.checkers.replays)
        redrives += len(run.checkers.redrives)
        erased += len(run.checkers.erased)
    assert min(replays, redrives, erased) > 3
