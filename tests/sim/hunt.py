"""Many runs in several processes: searches for a failure, or for what a mutant breaks."""

import time
from collections.abc import Callable
from functools import partial
from multiprocessing import get_context
from multiprocessing.pool import Pool

from msgspec import Struct

from tests.sim.mutants import catalogue
from tests.sim.resending.resending_run import ResendingRun
from tests.sim.run import Run
from tests.sim.world.world import RunFailed

SHOWN = 40
LINE_MAX = 400
WHAT_MAX = 160
SEEDS_MAX = 2000
SEEDS_AT_ONCE = 20
"""Seeds of a mutant that run at a time: the first that fails convicts it."""


def violation(seed: int, trace: bool = False, resending: bool = False) -> str:
    """Make a run, with jobs and erasures if `resending`; what was violated, with the history before it."""
    run = (ResendingRun if resending else Run)(seed, trace=trace)
    try:
        run.run()
    except RunFailed as failure:
        if trace:
            print("\n".join(run.world.history()))
            return str(failure)
        before = "\n".join(line[:LINE_MAX] for line in run.world.history()[-SHOWN:])
        return f"{before}\n{failure}"
    if trace:
        print("\n".join(run.world.history()))
    return ""


class Finding(Struct, frozen=True):
    """Evidence against a mutant: the run, what it violated, and what the product itself does there
    (nothing, if it passes)."""

    where: str
    what: str
    product: str


def violation_by(task: tuple[str, int]) -> Finding | None:
    """Runs with a mutant, and without it if that has failed."""
    name, seed = task
    run = partial(catalogue.BY_NAME[name].run or _seeded, seed)
    return _finding(name, f"seed {seed}", run)


def _seeded(seed: int) -> None:
    Run(seed).run()


def _finding(name: str, where: str, run: Callable[[], None]) -> Finding | None:
    with catalogue.BY_NAME[name]():
        what = _failure(run)
    return Finding(where, what, _failure(run)) if what else None


def _failure(run: Callable[[], None]) -> str:
    """The violation of a run in one sentence; empty if there is none."""
    try:
        run()
    except RunFailed as failure:
        return str(failure).partition("\n")[0]
    return ""


def simulate(first: int, runs: int, jobs: int, trace: bool, resending: bool = False) -> int:
    """Make the runs; 1 if one failed."""
    began_at, failed = time.monotonic(), 0
    seeds = range(first, first + runs)
    one = partial(violation, trace=trace, resending=resending)
    with _workers(jobs) as workers:
        found = map(one, seeds) if trace else workers.imap(one, seeds)
        for seed, text in zip(seeds, found, strict=True):
            if text:
                failed += 1
                which = f"--seed {seed}{' --resending' if resending else ''}"
                print(f"{text}\nTo see all of it: python -m tests.sim --trace --runs 1 {which}\n")
    took_s = time.monotonic() - began_at
    print(f"{runs} runs, {failed} failed, {runs / took_s:.1f} runs/s")
    return 1 if failed else 0


def hunt(names: list[str], first: int, jobs: int) -> int:
    """Look for what each mutant breaks, and print a table; 1 if one survives, or where the product fails."""
    survived = failed = 0
    with _workers(jobs) as workers:
        for name in names:
            began_at = time.monotonic()
            found = _find(name, first, workers)
            survived += found is None
            failed += bool(found and found.product)
            where, what = (found.where, found.what) if found else ("-", "SURVIVED")
            if found and found.product:
                what = f"THE PRODUCT ITSELF FAILS THERE: {found.product}"
            took_s = time.monotonic() - began_at
            print(f"{name:24} {where:>10} {took_s:6.1f} s  {what[:WHAT_MAX]}", flush=True)
    print(f"{len(names)} mutants, {survived} survived; {failed} found where the product fails, too")
    return 1 if survived or failed else 0


def _find(name: str, first: int, workers: Pool) -> Finding | None:
    if scenario := catalogue.BY_NAME[name].scenario:
        return _finding(name, "scenario", scenario)
    tasks = [(name, seed) for seed in range(first, first + SEEDS_MAX)]
    for start in range(0, SEEDS_MAX, SEEDS_AT_ONCE):
        found = [each for each in workers.map(violation_by, tasks[start : start + SEEDS_AT_ONCE], 1) if each]
        if found:
            return found[0]
    return None


def _workers(jobs: int) -> Pool:
    return get_context("spawn").Pool(jobs)
