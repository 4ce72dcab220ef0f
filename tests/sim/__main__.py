"""The simulator from the command line: `python -m tests.sim --seed 1 --runs 200`.

Each run has a seed of its own, counted up from the first. A failure prints the seed, what was violated, and
the history before it; `--trace` prints all of it. With `--mutants` rules are taken out of the product one by
one, and each has to be missed.
"""

import argparse
import sys

from tests.sim.hunt import hunt, simulate
from tests.sim.mutants.catalogue import BY_NAME


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the first run")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--trace", action="store_true", help="print whole histories")
    parser.add_argument("--jobs", type=int, default=2, help="processes at work")
    parser.add_argument("--resending", action="store_true", help="runs with jobs and erasures")
    parser.add_argument("--mutants", nargs="*", metavar="NAME", help="take out these rules, or all of them")
    args = parser.parse_args()
    if args.mutants is not None:
        return hunt(args.mutants or list(BY_NAME), args.seed, args.jobs)
    return simulate(args.seed, args.runs, args.jobs, args.trace, args.resending)


if __name__ == "__main__":
    sys.exit(main())
