"""The bench, small: it measures what it says, and nothing is lost or out of order on the way."""

import json
import subprocess
import sys

import msgspec

from angarium.bench.deliver import Figures
from angarium.bench.sink import Tally, percentile


def test_a_small_bench_ends_with_all_its_figures() -> None:
    command = [sys.executable, "-m", "angarium", "bench", "deliver", "--json"]
    small = ["--events", "2000", "--receivers", "20", "--seconds", "1"]
    done = subprocess.run([*command, *small], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    figures = msgspec.convert(json.loads(done.stdout), Figures)
    assert (figures.receivers, figures.events, figures.disordered) == (20, 2000, 0)
    assert 0 < figures.appends_per_delivery < 0.5
    assert figures.to_aiohttp == figures.deliveries / figures.aiohttp
    assert 0 < figures.p50_ms <= figures.p99_ms


def test_percentiles_are_of_the_nearest_rank() -> None:
    assert percentile([], 0.5) == 0.0
    assert percentile([1.0, 2.0, 3.0, 4.0], 0.5) == 3.0
    assert percentile([1.0, 2.0, 3.0, 4.0], 0.99) == 4.0


def test_the_tally_of_nothing_is_nothing() -> None:
    assert Tally().report().requests == 0
