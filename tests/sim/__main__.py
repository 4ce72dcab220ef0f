"""The simulator from the command line: `python -m tests.sim --seed 1 --runs 200`.

Each run has a seed of its own, counted up from the first. A failure prints the seed, what was violated, and
the history before it; `--trace` prints all of it.
"""

import argparse
import sys
import time

from tests.sim.run import Run
from tests.sim.world import RunFailed

SHOWN = 60


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description="Simulate Angarium having a bad time.")
    parser.add_argument("--seed", type=int, default=1, help="of the first run")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--trace", action="store_true", help="print the whole history of the first run")
    args = parser.parse_args()
    began_at, failed = time.monotonic(), 0
    for seed in range(args.seed, args.seed + args.runs):
        run = Run(seed, trace=args.trace)
        try:
            run.run()
        except RunFailed as failure:
            failed += 1
            print("\n".join(run.world.history()[-SHOWN:] if not args.trace else run.world.history()))
            print(failure)
        else:
            if args.trace:
                print("\n".join(run.world.history()))
    took_s = time.monotonic() - began_at
    print(f"{args.runs} runs, {failed} failed, {args.runs / took_s:.1f} runs/s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
