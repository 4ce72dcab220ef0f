"""What commands show to people: states in words, tables, and nothing that a terminal would obey."""

from typing import Any

import pytest

from angarium.console import output
from angarium.console.inspection import lines

STATE: dict[str, Any] = {
    "receiver": "acme.billing", "shard": 7, "node": "n1", "phase": "backing_off", "problems": [],
    "next_sequence": 3, "settled_sequence": 1, "in_flight": 0, "queued": 0, "backlog": 2, "parked": True,
    "disabled": None, "resume_at": "2026-01-31T12:00:00.000Z", "failing_since": None,
    "bucket": {"tokens": 1.5, "limit": 10, "per": "minute", "burst": 2, "effective_limit": 10},
    "last_attempt": {
        "at": "2026-01-31T11:59:00.000Z", "kind": "event", "sequence": 2, "event_id": "e2", "attempt": 4,
        "status": 503, "error": None, "latency_ms": 1.25,
    },
    "last_response": {"status": 503, "headers": {}, "body": "busy\x1b[2J"},
    "counters": {"delivered": 1, "dead": 0},
}  # fmt: skip


def test_a_state_begins_with_why_nothing_comes() -> None:
    assert lines(STATE)[0] == "acme.billing: backing off until 2026-01-31T12:00:00.000Z, 2 waiting"


def test_a_state_in_words() -> None:
    shown = {name: value for name, _, value in (line.strip().partition("  ") for line in lines(STATE)[1:])}
    shown = {name: value.strip() for name, value in shown.items()}
    assert shown["bucket"] == "1.5 of 2 tokens, 10 a minute"
    assert shown["last_attempt"] == "#2, attempt 4: 503 after 1.25 ms, 2026-01-31T11:59:00.000Z"
    assert shown["last_response"] == r"503 busy\x1b[2J"
    assert shown["counters"] == "delivered 1, dead 0"
    assert shown["parked"] == "yes"
    assert not {"failing_since", "disabled", "problems"} & shown.keys()


def test_a_ping_has_no_number() -> None:
    attempt = STATE["last_attempt"] | {"kind": "ping", "sequence": None, "status": None, "error": "connect"}
    [line] = [line for line in lines(STATE | {"last_attempt": attempt}) if "last_attempt" in line]
    assert "ping: connect after" in line


def test_a_table_in_a_pipe_is_lines_with_tabs(capsys: pytest.CaptureFixture[str]) -> None:
    output.say_table(("name", "signed", "rate"), [("a\tb", True, None), ("c", False, "10/second")])
    assert capsys.readouterr().out == "name\tsigned\trate\na\\tb\tyes\t-\nc\tno\t10/second\n"


def test_a_table_on_a_terminal_is_drawn(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "on_terminal", lambda: True)
    output.say_table(("name", "rate"), [("[bold]a", "10/second")])
    assert "[bold]a" in capsys.readouterr().out


def test_long_texts_are_cut_in_one_line() -> None:
    assert output.first_of("a\nb", 10) == r"a\nb"
    assert output.first_of("abcdef", 4) == "abc…"
