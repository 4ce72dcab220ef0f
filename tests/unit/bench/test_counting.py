"""What is counted of a profile, and what is told of two counts."""

from cProfile import Profile

from angarium.bench.measuring.counting import Calls, counts_of


def called(times: int) -> list[int]:
    return [len(str(number)) for number in range(times)]


def test_calls_into_c_count_for_who_makes_them() -> None:
    profile = Profile()
    profile.enable()
    called(3)
    called(2)
    profile.disable()
    counts = counts_of(profile)
    mine = {name: count for name, count in counts.items() if name.startswith("called")}
    assert sum(mine.values()) >= 2 + 5  # Python 3.11 calls a comprehension, too, and 3.12 does not.
    assert not any("len" in name for name in counts)


def test_functions_with_more_calls_are_listed_the_worst_first() -> None:
    before = Calls({"Actor.wake": 1.0, "Lease.valid": 2.0, "sign": 4.0})
    now = Calls({"Actor.wake": 1.5, "Lease.valid": 5.0, "sign": 2.0, "higher": 0.75})
    assert now.whole == 9.25
    assert now.grown(before).splitlines() == [
        "   2.00 ->    5.00  Lease.valid",
        "   0.00 ->    0.75  higher",
        "   1.00 ->    1.50  Actor.wake",
    ]
    assert now.grown(before, shown=1) == "   2.00 ->    5.00  Lease.valid"
    assert now.grown(now) == ""
