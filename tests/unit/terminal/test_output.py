"""Output of commands: states in words, tables, and no control character."""

import json
from typing import Any

import pytest

from angarium import logs
from angarium.cli import main
from angarium.cli.dead_letters import table
from angarium.cli.ledger_queries.attempt_table import failing_cells
from angarium.cli.live.inspection import lines
from angarium.cli.receivers import receiver
from angarium.operations.configurations.get import ShownConfiguration, shown
from angarium.operations.dead_letters.shown import ShownLetter
from angarium.terminal import output
from streams.buckets.stored_configurations import Configuration
from streams.dead_letters.letters import Letter

STATE: dict[str, Any] = {
    "receiver": "acme.billing", "shard": 7, "node": "n1", "phase": "backing_off",
    "why": "backing off until 2026-01-31T12:00:00Z (in 9s): 4 failures in a row, the last: HTTP 503",
    "problems": [],
    "next_sequence": 3, "settled_sequence": 1, "in_flight": 0, "queued": 0, "backlog": 2, "parked": True,
    "head": {
        "sequence": 2, "event_id": "e2", "type": "order.created", "stored_at": "2026-01-31T11:53:00.000Z",
        "age_s": 420.0,
    },
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
    assert lines(STATE)[0] == (
        "acme.billing: 2 waiting, backing off until 2026-01-31T12:00:00Z (in 9s): "
        "4 failures in a row, the last: HTTP 503"
    )
    assert lines(STATE | {"backlog": 0, "why": "nothing waits"})[0] == "acme.billing: nothing waits"


def test_the_first_line_names_the_command_that_helps() -> None:
    assert lines(STATE | {"why": "paused", "remedy": "resume"})[0] == (
        "acme.billing: 2 waiting, paused; to continue, run angarium receiver resume acme.billing"
    )
    assert lines(STATE | {"backlog": 0, "why": "nothing waits; misconfigured", "remedy": "put"})[0] == (
        "acme.billing: nothing waits; misconfigured; to fix it, run angarium receiver edit acme.billing"
    )


def test_the_first_line_does_not_send_to_the_editor_for_a_missing_key() -> None:
    assert lines(STATE | {"why": "misconfigured", "remedy": "key"})[0] == (
        "acme.billing: 2 waiting, misconfigured; it continues once its node has the key"
    )


def test_the_transform_is_shown_by_the_numbers_of_its_pointers() -> None:
    transform = {"revision": 7, "keep": None, "drop": 2, "pseudonymize": 1, "open_otherwise": 0}
    for more, told in (
        ({}, "drop 2, pseudonymize 1, of revision 7"),
        ({"keep": 3, "open_otherwise": 4},
         "keep 3, drop 2, pseudonymize 1, of revision 7; open events that keep another or none: 4"),
        ({"drop": 0, "pseudonymize": 0}, "no pointers, of revision 7"),
    ):  # fmt: skip
        assert any(line.endswith(f"  {told}") for line in lines(STATE | {"transform": transform | more}))


def test_control_characters_from_a_receiver_are_escaped_in_the_first_line() -> None:
    assert "\x1b" not in "".join(lines(STATE | {"why": "the last: \x1b[2J"}))


def test_a_node_of_an_older_version_has_only_a_phase() -> None:
    older = {name: value for name, value in STATE.items() if name not in ("why", "head")}
    assert lines(older)[0] == "acme.billing: 2 waiting, backing off"


def test_all_limits_of_a_receiver_are_shown_the_tightest_first() -> None:
    other = {"tokens": 10.0, "limit": 10.0, "per": "second", "burst": 10, "effective_limit": 10.0}
    bucket = {**STATE["bucket"], "others": [other]}
    assert any(
        line.endswith(
            "1.5 of 2 tokens; rate 10/minute, burst 2; also 10 of 10 tokens; rate 10/second, burst 10"
        )
        for line in lines(STATE | {"bucket": bucket})
    )


def test_a_margin_is_shown_with_the_limit_that_it_leaves() -> None:
    bucket = {"tokens": 45.0, "limit": 500.0, "per": "minute", "burst": 45, "effective_limit": 450.0}
    words = "45 of 45 tokens; rate 500/minute, margin 0.9: 450/minute, burst 45"
    assert any(line.endswith(words) for line in lines(STATE | {"bucket": bucket | {"margin": 0.9}}))


def test_a_state_in_words() -> None:
    shown = {name: value for name, _, value in (line.strip().partition("  ") for line in lines(STATE)[1:])}
    shown = {name: value.strip() for name, value in shown.items()}
    assert shown["bucket"] == "1.5 of 2 tokens; rate 10/minute, burst 2"
    assert shown["last_attempt"] == "#2, attempt 4: 503 after 1.25 ms, 2026-01-31T11:59:00.000Z"
    assert shown["last_response"] == r"503 busy\x1b[2J"
    assert shown["counters"] == "delivered 1, dead 0"
    assert shown["head"] == "#2 order.created, e2, 7m old"
    assert shown["backlog"] == "2 (accepted and not settled)"
    assert shown["queued"] == "0 (of the backlog, in the node's memory)"
    assert list(shown).index("queued") == list(shown).index("backlog") + 1
    assert (
        shown["parked"] == "yes (events that are not queued are read from the stream when their turn comes)"
    )
    assert shown["phase"] == "backing_off"
    assert not {"failing_since", "disabled", "problems", "why"} & shown.keys()


def test_unrouted_events_are_shown_with_the_state() -> None:
    told = "3 events of acme wait to be routed, the oldest for 40s"
    assert any(line.endswith(f"  {told}") for line in lines(STATE | {"unrouted": told}))
    first, *others = lines(STATE | {"backlog": 0, "why": "nothing waits", "unrouted": told})
    assert first == f"acme.billing: nothing waits; {told}"
    assert not any("unrouted" in line for line in others)


def test_a_head_whose_body_is_not_in_memory_has_no_type() -> None:
    head = STATE["head"] | {"type": None}
    [line] = [line for line in lines(STATE | {"head": head}) if line.startswith("  head")]
    assert line.split("  ")[-1] == "#2, e2, 7m old"


def test_an_answer_whose_body_is_withheld_has_a_status() -> None:
    [line] = [line for line in lines(STATE | {"last_response": {"status": 503}}) if "last_response" in line]
    assert line.split() == ["last_response", "503"]


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
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    output.say_table(("name", "rate"), [("[bold]a", "10/second")])
    assert "[bold]a" in capsys.readouterr().out


def test_long_texts_are_cut_in_one_line() -> None:
    assert output.first_of("a\nb", 10) == r"a\nb"
    assert output.first_of("abcdef", 4) == "abc…"
    assert output.first_of("abcd", 4) == "abcd"
    assert output.first_of("日本語", 6) == "日本語"
    assert output.first_of("日本語", 5) == "日本…"
    assert output.first_of("日本語", 4) == "日…"
    assert output.first_of("e" + "\u0301" * 100, 4) == "e\u0301\u0301\u0301…"
    assert output.first_of("\n\n\n\n", 4) == r"\n\…"


def test_control_characters_are_escaped_in_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    data = {"body": "a\x1b[2J\x7f\x9b2J\u202eß\n"}
    output.say_json(data)
    output.say_json_line(data)
    document, line = capsys.readouterr().out.split("}\n", 1)
    assert "".join(document.splitlines()).isprintable()
    assert line.rstrip("\n").isprintable()
    assert json.loads(document + "}") == json.loads(line) == data
    assert "ß" in line


def test_problems_of_a_configuration_are_noted_and_it_is_not_applied(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = ShownConfiguration(
        members={"url": "\x1b[31m"},
        revision=1,
        problems=["bad\x1b[2J", "worse"],
        warnings=["unknown member \u202efdp"],
    )
    monkeypatch.setattr(receiver, "perform", lambda *_: found)
    monkeypatch.setattr(logs, "configure", lambda *_: None)
    assert main.run(["receiver", "get", "acme.billing"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == {"url": "\x1b[31m"}
    assert (out + err).replace("\n", "").isprintable()
    assert err.splitlines() == [
        r"not in force: bad\x1b[2J; worse",
        r"in force, except: unknown member \u202efdp",
    ]


@pytest.mark.parametrize(
    ("members", "invalid", "ignored"),
    [
        (b'{"url": "https://a.example"}', False, False),
        (b'{"url": "https://a.example", "colour": 1}', False, True),
        (b'{"url": "ftp://a.example"}', True, False),
        (b"{", True, False),
    ],
)
def test_a_configuration_with_warnings_is_in_force(members: bytes, invalid: bool, ignored: bool) -> None:
    found = shown(Configuration(members, 1))
    assert (bool(found.problems), bool(found.warnings)) == (invalid, ignored)


def test_nothing_in_a_letter_is_obeyed() -> None:
    """A producer may publish to a name that no receiver can have, and with whatever headers."""
    headers = {
        "Angarium-Reason": "malformed",
        "X-\x1b": "\x1b[2J",
        "n" * 60_000: "",
        "Angarium-Response": "%1B",
    }
    letter = Letter(1, "ac\x1b[2Jme.\u202e", 0.0, headers, b"\x1b[2J\nbody")
    shown = list(table.lines(ShownLetter(letter, letter.body)))
    assert shown[0].startswith("letter 1: ac\\x1b[2Jme.\\u202e, malformed, ")
    assert all(line.isprintable() for line in shown)
    assert sum(map(len, shown)) < 61_000


def test_nothing_in_an_error_is_obeyed() -> None:
    assert main._sentence("--reason \x1b[2J\u202e\x9b: there is\nno such.") == (
        "--reason \\x1b[2J\\u202e\\x9b: there is no such"
    )


def test_an_answer_from_before_the_last_attempt_is_left_out() -> None:
    refused = STATE["last_attempt"] | {"status": None, "error": "refused: connection refused"}
    told = "\n".join(lines(STATE | {"last_attempt": refused, "last_response": {"status": 200}}))
    assert "last_response" not in told
    assert "last_response" in "\n".join(lines(STATE))


def test_whole_numbers_are_printed_whole() -> None:
    members = {"rate": {"limit": 100.0, "per": "second"}, "timeout_s": 7.5, "events": ["a"], "paused": False}
    assert json.dumps(receiver.with_whole_numbers(members)) == (
        '{"rate": {"limit": 100, "per": "second"}, "timeout_s": 7.5, "events": ["a"], "paused": false}'
    )


def test_a_disabled_receiver_fails_since_no_time() -> None:
    row = {
        "failing_since": None, "receiver": "acme.a", "failures": 0, "disabled": "gone", "status": 410,
        "error": None,
    }  # fmt: skip
    assert failing_cells(row) == ["disabled", "acme.a", None, "disabled (gone); HTTP 410"]
