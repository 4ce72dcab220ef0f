"""Many runs in several processes: looking for a failure, or for what a mutant breaks."""

import time
from collections.abc import Iterator
from itertools import count
from multiprocessing import get_context
from multiprocessing.pool import Pool

from tests.sim import mutants
from tests.sim.run import Run
from tests.sim.world import RunFailed

SHOWN = 40
LINE_MAX = 400
SEEDS_MAX = 2000


def violation(seed: int, trace: bool = False) -> str:
    """Make a run; what was violated, with the history before it, or nothing."""
    run = Run(seed, trace=trace)
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


def violation_by(task: tuple[str, int]) -> str:
    """The same with a mutant: one sentence is enough."""
    name, seed = task
    with mutants.BY_NAME[name]():
        try:
            Run(seed).run()
        except RunFailed as failure:
            return str(failure).partition("\n")[0]
    return ""


def simulate(first: int, runs: int, jobs: int, trace: bool) -> int:
    """Make the runs; 1 if one failed."""
    began_at, failed = time.monotonic(), 0
    seeds = range(first, first + runs)
    with _workers(jobs) as workers:
        found = (violation(seed, True) for seed in seeds) if trace else workers.imap(violation, seeds)
        for seed, text in zip(seeds, found, strict=True):
            if text:
                failed += 1
                print(f"{text}\nTo see all of it: python -m tests.sim --trace --runs 1 --seed {seed}\n")
    took_s = time.monotonic() - began_at
    print(f"{runs} runs, {failed} failed, {runs / took_s:.1f} runs/s")
    return 1 if failed else 0


def hunt(names: list[str], first: int, jobs: int) -> int:
    """Look for what each mutant breaks, and print a table; 1 if one survives."""
    survived = 0
    for name in names:
        began_at = time.monotonic()
        where, what = next(_findings(name, first, jobs), ("-", "SURVIVED"))
        survived += what == "SURVIVED"
        print(f"{name:24} {where:>10} {time.monotonic() - began_at:6.1f} s  {what[:160]}", flush=True)
    print(f"{len(names)} mutants, {survived} survived")
    return 1 if survived else 0


def _findings(name: str, first: int, jobs: int) -> Iterator[tuple[str, str]]:
    scenario = mutants.BY_NAME[name].scenario
    if scenario:
        with mutants.BY_NAME[name]():
            try:
                scenario()
            except RunFailed as failure:
                yield "scenario", str(failure).partition("\n")[0]
        return
    tasks = ((name, seed) for seed in range(first, first + SEEDS_MAX))
    with _workers(jobs) as workers:
        for seed, text in zip(count(first), workers.imap(violation_by, tasks, chunksize=2)):
            if text:
                yield f"seed {seed}", text


def _workers(jobs: int) -> Pool:
    return get_context("spawn").Pool(jobs)
