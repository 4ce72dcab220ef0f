"""The table of rules and plants: `python -m tests.pace_model`.

Each cell has the part of the oracle's deliveries that is lost after two minutes, and the part of the
attempts that is refused, both in per cent. The last rows have the worst of all plants: recovery after a
doubling, fairness of two senders, facts a second. With several seeds each figure is the worst of them. Rules
that read headers are tried on plants that send some.
"""

import argparse
import sys
from collections.abc import Callable, Sequence

from actors.machine.pace.pace import PaceRule
from tests.pace_model.cases import CASES, Case
from tests.pace_model.other_sizes import OTHER_SIZES
from tests.pace_model.sender import SenderProfile
from tests.pace_model.trials import HEADERS, LENGTH_S, RULES, Score, run_trial


def score_cell(scores: Sequence[Score]) -> str:
    """Lost and refused, in per cent."""
    lost, refused = max(score.lost for score in scores), max(score.refused for score in scores)
    return f"{max(0.0, 100 * lost):.1f} · {100 * refused:.1f}"


def last_cells(scores: Sequence[Score]) -> list[str]:
    """Recovery, fairness and facts over all plants."""
    if not scores:
        return ["", "", ""]
    recoveries = [score.recovery_s for score in scores if score.recovery_s is not None]
    slowest = max(recoveries, default=None)
    recovery = "" if slowest is None else "never" if slowest == float("inf") else f"{slowest:.0f} s"
    indexes = [score.fairness for score in scores if score.fairness is not None]
    fairness = f"{min(indexes):.2f}" if indexes else ""
    return [recovery, fairness, f"{max(score.facts for score in scores):.2f}"]


def table(
    rules: dict[str, Callable[[SenderProfile], PaceRule]],
    cases: Sequence[Case],
    seeds: Sequence[int],
    length_s: int,
) -> str:
    """The table in Markdown: a row for each plant, a column for each rule."""
    columns = [[f"| {name} |" for name in ("plant", "---", *(case.name for case in cases))]]
    columns[0] += ["| *recovery* |", "| *fairness* |", "| *facts/s* |"]
    columns[0][1] = "| --- |"
    for name, rule in rules.items():
        scores = [
            [run_trial(case, rule, seed, length_s) for seed in seeds]
            if case.tells or HEADERS not in name
            else []
            for case in cases
        ]
        every = [score for each in scores for score in each]
        cells = [name, "---", *(score_cell(each) if each else "" for each in scores), *last_cells(every)]
        columns.append([f" {each} |" for each in cells])
    return "\n".join("".join(row) for row in zip(*columns, strict=True))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.pace_model", description=__doc__)
    parser.add_argument("--rules", nargs="*", default=list(RULES), metavar="NAME", help="only these")
    parser.add_argument("--plants", nargs="*", metavar="NAME", help="only those whose name has one of these")
    parser.add_argument("--other-sizes", action="store_true", help="plants on which no number was tuned")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds")
    parser.add_argument("--first-seed", type=int, default=1, metavar="N", help="the first of them")
    parser.add_argument("--length", type=int, default=LENGTH_S, help="of each trial, in seconds")
    args = parser.parse_args()
    known = OTHER_SIZES if args.other_sizes else CASES
    cases = [case for case in known if not args.plants or any(name in case.name for name in args.plants)]
    rules = {name: RULES[name] for name in args.rules}
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    print(table(rules, cases, seeds, args.length))
    return 0


if __name__ == "__main__":
    sys.exit(main())
