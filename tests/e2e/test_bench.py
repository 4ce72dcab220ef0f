"""The bench, small: it measures what it says, and nothing is lost or out of order on the way."""

import json
import subprocess
import sys
from pathlib import Path

import msgspec

from angarium.bench.deliver import Figures


def test_a_small_bench_ends_with_all_its_figures(tmp_path: Path) -> None:
    profile = tmp_path / "profile.txt"
    command = [sys.executable, "-m", "angarium", "bench", "deliver", "--json"]
    small = ["--events", "2000", "--receivers", "20", "--seconds", "1", "--profile", str(profile)]
    done = subprocess.run([*command, *small], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    figures = msgspec.convert(json.loads(done.stdout), Figures)
    assert (figures.receivers, figures.events, figures.profiled) == (20, 2000, True)
    assert (figures.lost, figures.repeats, figures.disordered) == (0, 0, 0)
    assert 0 < figures.appends_per_delivery < 0.5
    assert figures.to_aiohttp == figures.deliveries / figures.aiohttp
    assert figures.deliveries_while_publishing > 0
    assert 0 < figures.p50_ms <= figures.p99_ms
    assert "http1.py" in profile.read_text()
