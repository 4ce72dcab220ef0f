"""Counts of calls in a profile, the comparison of two, and the table of several."""

from cProfile import Profile

from angarium.bench.calls import CallsFigures, DeliveryKind
from angarium.bench.measuring.counting import LOOP, Calls, calls_of
from angarium.cli.development.bench import calls_rows


def called(times: int) -> list[int]:
    return [len(str(number)) for number in range(times)]


def test_calls_into_c_count_for_their_caller() -> None:
    profile = Profile()
    profile.enable()
    called(3)
    called(2)
    profile.disable()
    calls = calls_of(profile, 2)
    mine = {name: count for name, count in calls.by_folder[LOOP].items() if name.startswith("called")}
    assert sum(mine.values()) >= (2 + 5) / 2  # Python 3.11 calls a comprehension, too, and 3.12 does not.
    assert not any("len" in name for name in calls.functions)


def test_functions_with_more_calls_are_listed_the_worst_first() -> None:
    before = Calls({"shell": {"Actor.wake": 1.0, "Lease.valid": 2.0}, "transport": {"sign": 4.0}})
    now = Calls(
        {"shell": {"Actor.wake": 1.5, "Lease.valid": 5.0, "higher": 0.75}, "transport": {"sign": 2.0}}
    )
    assert now.whole == 9.25
    assert now.grown(before).splitlines() == [
        "   2.00 ->    5.00  Lease.valid",
        "   0.00 ->    0.75  higher",
        "   1.00 ->    1.50  Actor.wake",
    ]
    assert now.grown(before, shown=1) == "   2.00 ->    5.00  Lease.valid"
    assert now.grown(now) == ""


def test_the_greatest_room_and_function_come_first() -> None:
    def figures(way: DeliveryKind, folders: dict[str, dict[str, float]]) -> CallsFigures:
        return CallsFigures(way=way, deliveries=1, calls=Calls(folders), lost=0, repeats=0, disordered=0)

    ways = [
        figures("strict", {"journal": {"Journal.add": 3.0}, "shell": {"Host.arrive": 1.0, "wake": 4.0}}),
        figures("relaxed", {"journal": {"Journal.add": 6.0, "Journal.is_stalled": 0.04}}),
    ]
    assert list(calls_rows(ways)) == [
        ("all", "8.0", "6.0"),
        ("shell", "5.0", "0.0"), ("  wake", "4.0", "0.0"), ("  Host.arrive", "1.0", "0.0"),
        ("journal", "3.0", "6.0"), ("  Journal.add", "3.0", "6.0"),
    ]  # fmt: skip
