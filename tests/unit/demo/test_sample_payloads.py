"""The sample payloads: enough kinds and sizes to matter, small enough for a repository."""

import json
import statistics
from importlib import resources

from angarium.demo import sample_payloads


def test_payloads_are_a_spread_of_real_events() -> None:
    loaded = sample_payloads.load()
    sizes = [len(payload.body) for payload in loaded]
    assert 60 <= len(loaded) <= 80
    assert len({payload.type for payload in loaded}) > 50
    assert 2_500 < statistics.median(sizes) < 4_000
    assert min(sizes) < 1_000
    assert max(sizes) > 20_000
    assert all(json.loads(payload.body) for payload in loaded)


def test_some_bodies_are_not_ascii() -> None:
    assert any(not payload.body.isascii() for payload in sample_payloads.load())


def test_the_file_is_small_and_names_its_source() -> None:
    payloads = resources.files("angarium.demo") / "payloads"
    assert len((payloads / "payloads.jsonl").read_bytes()) <= 300_000
    assert "@octokit/webhooks-examples` 7.6.1" in (payloads / "README.md").read_text()
