"""Calls that a node makes for a delivery: a loss of speed shows even on a noisy machine."""

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import uvloop

from angarium.bench.calls import CallsFigures, CallsPlan, DeliveryKind, measure
from angarium.bench.measuring.counting import Calls

CALLS_MAX: dict[DeliveryKind, float] = {"strict": 268.0, "relaxed": 370.0, "fanned out": 387.0}
"""Calls for one delivery under Python 3.11. Runs differ by 1 on a machine at rest; on one that is overloaded
receivers are parked, relaxed ones most, which took up to 12 more. At rest they are 264, 364 and 381; the
bounds are for the whole suite, which runs other tests meanwhile.

Who needs more says here for what; who needs fewer lowers it. The table goes along. Three of them, in strict
order, are for answers that steer and for alerts, and five for POSTs that may have several events. In relaxed
order three more are for failures of ours. The last eight are for outages of the node and of hosts, learnt
paces, and bodies that are shaped.
"""

RECORDED = Path(__file__).with_name("calls_per_delivery.json")
"""The calls of each function when the bounds were set; less than one in ten deliveries is left out."""

LOOKS = 3
"""A machine that is overloaded parks receivers, which takes more calls."""


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="another Python makes other calls")
def test_a_delivery_takes_no_more_calls_than_it_did(tmp_path: Path) -> None:
    fewest: dict[DeliveryKind, Calls] = {}
    for _ in range(LOOKS):
        for each in uvloop.run(measure(CallsPlan(), lambda _: None)):
            assert (each.lost, each.repeats, each.disordered) == (0, 0, 0)
            fewest[each.way] = min(
                fewest.get(each.way, each.calls), each.calls, key=lambda calls: calls.whole
            )
        if all(calls.whole <= CALLS_MAX[way] for way, calls in fewest.items()):
            break
    now = tmp_path / RECORDED.name
    now.write_bytes(told(fewest))
    recorded = msgspec.json.decode(RECORDED.read_bytes(), type=dict[DeliveryKind, Calls])
    for way, calls in fewest.items():
        grown = calls.grown(recorded[way])
        assert calls.whole <= CALLS_MAX[way], f"{way}: {calls.whole:.1f} (all: {now}); what grew:\n{grown}"


def test_each_call_belongs_to_the_room_that_makes_it() -> None:
    command = [
        sys.executable,
        "-m",
        "angarium",
        "bench",
        "calls",
        "--json",
        "--receivers",
        "3",
        "--rounds",
        "1",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    ways = msgspec.convert(json.loads(done.stdout), list[CallsFigures])
    assert [each.way for each in ways] == ["strict", "relaxed", "fanned out"]
    for each in ways:
        folders = each.calls.by_folder
        assert (each.deliveries, each.lost, each.repeats, each.disordered) == (6, 0, 0, 0)
        assert folders["machine"]["evolve"] >= 1
        assert folders["transport"]["HttpSender.send"] >= 1
        assert folders["journal"]["Journal.add"] >= 1
        assert folders["reading"]["Inbox._on_message"] >= 1
        assert folders["NATS client"]["NatsClient.hand_over"] >= 1
        assert folders["shell"]["Actor.arrive"] >= 1
        assert ("Router._on_message" in folders.get("routing", {})) == (each.way == "fanned out")
        assert not any("Bench" in name for name in each.calls.functions)


def told(fewest: dict[DeliveryKind, Calls]) -> bytes:
    """The text of `RECORDED`."""
    many = {
        way: Calls({
            folder: {name: round(count, 2) for name, count in sorted(functions.items()) if count >= 0.1}
            for folder, functions in sorted(calls.by_folder.items())
        })
        for way, calls in fewest.items()
    }  # fmt: skip
    return msgspec.json.format(msgspec.json.encode(many), indent=1) + b"\n"
