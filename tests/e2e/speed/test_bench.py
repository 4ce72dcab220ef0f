"""The bench, small: it measures what it says, and no event is lost or out of order."""

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from angarium.bench import api, deliver, fanout, isolation, scale
from angarium.bench.console import pages


@pytest.mark.soak
@pytest.mark.alone
def test_a_small_bench_ends_with_all_its_figures(tmp_path: Path) -> None:
    profile = tmp_path / "profile.txt"
    command = [sys.executable, "-m", "angarium", "bench", "deliver", "--json"]
    small = ["--deliveries", "20000", "--receivers", "20", "--seconds", "0.4", "--profile", str(profile)]
    done = subprocess.run([*command, *small], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    figures = msgspec.convert(json.loads(done.stdout), deliver.DeliverFigures)
    assert (figures.receivers, figures.delivered, figures.fan) == (20, 20_000, 1)
    assert (figures.lost, figures.repeats, figures.disordered) == (0, 0, 0)
    assert 0 < figures.appends_per_delivery < 0.5
    assert figures.to_aiohttp == figures.deliveries / figures.aiohttp
    assert figures.deliveries_while_publishing > 0
    assert 0 < figures.p50_ms <= figures.p99_ms
    if figures.cpu_us_per_delivery is not None:
        assert sum(figures.parts_us.values()) == pytest.approx(figures.cpu_us_per_delivery)
        assert {"machine", "transport", "pull"} <= figures.parts_us.keys()
        assert figures.server_cpu_us_per_delivery is not None
        assert figures.server_cpu_us_per_delivery > 0
        assert figures.gentle_cpu is not None
        assert figures.gentle_server_cpu is not None
        assert 0 < figures.gentle_cpu < 2
        assert 0 < figures.gentle_server_cpu < 2
    assert figures.gentle_p99_ms > 0
    assert "http1.py" in profile.read_text()


def test_a_small_fan_out_is_measured_whole() -> None:
    command = [sys.executable, "-m", "angarium", "bench", "fanout", "--json"]
    small = ["--copies", "500", "--receivers", "20", "--wide", "100", "--seconds", "0.3"]
    done = subprocess.run([*command, *small], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    figures = msgspec.convert(json.loads(done.stdout), fanout.FanoutFigures)
    assert (figures.receivers, figures.copies, figures.wide) == (20, 500, 100)
    assert (figures.lost, figures.repeats, figures.disordered) == (0, 0, 0)
    assert min(figures.copies_per_s, figures.copies_per_s_delivered, figures.server, figures.lanes) > 0
    assert 0 < figures.neighbours_p50_ms <= figures.neighbours_worst_ms
    assert 0 < figures.neighbours_during_p50_ms <= figures.neighbours_during_worst_ms


@pytest.mark.soak
@pytest.mark.alone
def test_publishing_over_http_is_measured_next_to_a_bare_route() -> None:
    command = [sys.executable, "-m", "angarium", "bench", "api", "--json"]
    small = ["--connections", "8", "--batch", "20", "--rounds", "1", "--seconds", "0.4"]
    done = subprocess.run([*command, *small], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    figures = msgspec.convert(json.loads(done.stdout), api.ApiFigures)
    assert (figures.connections, figures.batch, figures.delivered) == (8, 20, 80)
    assert (figures.lost, figures.repeats, figures.disordered) == (0, 0, 0)
    assert figures.to_bare == figures.single.per_s / figures.bare.per_s
    assert 0 < figures.p50_ms <= figures.p99_ms
    for each in (figures.single, figures.bare, figures.batched):
        assert each.per_s > 0
        assert each.client_cpu_us > 0
    if figures.single.server_cpu_us is not None and figures.single.nats_cpu_us is not None:
        assert figures.single.server_cpu_us > figures.single.nats_cpu_us >= 0


@pytest.mark.soak
@pytest.mark.alone
def test_batches_are_measured_by_their_events() -> None:
    command = [sys.executable, "-m", "angarium", "bench", "deliver", "--batch", "50", "--json"]
    small = ["--deliveries", "2000", "--receivers", "2", "--seconds", "0.5"]
    done = subprocess.run([*command, *small], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    figures = msgspec.convert(json.loads(done.stdout), deliver.DeliverFigures)
    assert figures.delivered == 2000
    assert (figures.lost, figures.repeats, figures.disordered) == (0, 0, 0)
    assert 0 < figures.p50_ms <= figures.p99_ms


@pytest.mark.soak
@pytest.mark.alone
def test_events_are_measured_by_way_of_the_router_too() -> None:
    command = [sys.executable, "-m", "angarium", "bench", "deliver", "--fan", "5", "--json"]
    small = ["--deliveries", "1000", "--receivers", "20", "--seconds", "0.5"]
    done = subprocess.run([*command, *small], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    figures = msgspec.convert(json.loads(done.stdout), deliver.DeliverFigures)
    assert (figures.delivered, figures.fan) == (1000, 5)
    assert (figures.lost, figures.repeats, figures.disordered) == (0, 0, 0)
    assert 0 < figures.p50_ms <= figures.p99_ms


@pytest.mark.soak
@pytest.mark.alone
def test_a_crowd_a_kill_and_a_backlog_are_measured() -> None:
    command = [sys.executable, "-m", "angarium", "bench", "scale", "--json"]
    small = [
        "--receivers", "500", "--active", "50", "--parked", "20", "--loaded", "2000", "--behind", "500",
        "--seconds", "0.5",
    ]  # fmt: skip
    done = subprocess.run([*command, *small], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    figures = msgspec.json.decode(done.stdout, type=scale.ScaleFigures)
    assert (figures.receivers, figures.active, figures.parked, figures.behind) == (500, 50, 20, 500)
    assert (figures.lost, figures.repeats, figures.disordered) == (0, 0, 0)
    assert figures.drain > 0
    assert figures.drain_relaxed > 0
    assert [count for count, rate in figures.per_cpu_s.items() if rate > 0] in ([1, 2, 4], [])
    assert 0 <= figures.repeated < figures.loaded == 2000
    assert figures.ttl_s < figures.first_s <= figures.all_s + 1
    assert 0 < figures.resident_p50_ms <= figures.resident_p99_ms
    assert 0 < figures.fresh_p50_ms <= figures.fresh_p99_ms


@pytest.mark.soak
@pytest.mark.alone
def test_healthy_receivers_are_measured_next_to_each_trouble() -> None:
    command = [sys.executable, "-m", "angarium", "bench", "isolation", "--json"]
    few = ["--receivers", "40", "--behind", "500", "--slow", "5", "--hanging", "10", "--flood", "500"]
    done = subprocess.run(
        [*command, *few, "--runs", "1", "--seconds", "0.3"],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = msgspec.convert(json.loads(done.stdout), list[isolation.Row])
    assert [row.neighbours for row in rows] == [
        "no other receivers", "a dead receiver with 500 waiting",
        "5 that answer after 5 s", "10 of one shard that hang", "the same, as they begin",
        "a flood of 500 events", "the same, on its partition",
    ]  # fmt: skip
    for row in rows:
        assert (row.lost, row.repeats, row.disordered) == (0, 0, 0)
        assert 0 < row.p50_ms <= row.p99_ms <= row.worst_ms


@pytest.mark.soak
def test_each_page_of_the_console_is_measured() -> None:
    command = [sys.executable, "-m", "angarium", "bench", "console", "--json"]
    small = ["--receivers", "200", "--attempts", "2000", "--rounds", "1", "--shards", "4"]
    done = subprocess.run([*command, *small], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    figures = msgspec.convert(json.loads(done.stdout), pages.ConsoleFigures)
    assert (figures.receivers, figures.attempts) == (200, 2000)
    assert len(figures.pages) == len({each.path for each in figures.pages}) > 10
    for each in figures.pages:
        assert each.size > 1000
        assert min(each.first_ms, each.p50_ms) > 0
        assert each.p50_ms <= each.p99_ms
