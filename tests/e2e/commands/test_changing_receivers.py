"""Control by command: a receiver is changed, edited, and given a new secret."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes.commands import Terminal

URL = "https://example.com/hook"


@pytest.fixture(scope="module")
def terminal(nats_url: str, tmp_path_factory: pytest.TempPathFactory) -> Terminal:
    """One installation for all tests, each of which has a receiver of its own."""
    terminal = Terminal(tmp_path_factory.mktemp("changing"), nats_url)
    terminal.done("setup")
    return terminal


def test_set_changes_only_the_members_that_it_names(terminal: Terminal) -> None:
    rate = ("--rate", "10/second", "--burst", "20")
    put = ("--url", URL, *rate, "--header", "x-team=hush", "--order", "relaxed")
    terminal.done("receiver", "put", "acme.part", *put)
    change = ("receiver", "set", "acme.part", "--rate", "5/second", "--unset", "headers.x-team")
    changes = ["  rate: 10/second, burst 20 → 5/second, burst 20", "  headers.x-team: … → none"]
    assert terminal.done(*change, "--dry-run").splitlines()[1:] == changes
    assert terminal.json("receiver", "get", "acme.part")["rate"]["limit"] == 10
    assert terminal.done(*change).splitlines()[1:] == changes
    shown = terminal.json("receiver", "get", "acme.part")
    assert (shown["order"], shown["headers"], shown["secrets"]) == ("relaxed", {}, ["…"])
    assert terminal.done(*change[:-2]).startswith("unchanged: acme.part (revision")
    assert "nothing to change; give a flag" in terminal.failed("receiver", "set", "acme.part", status=2)
    both = ("--unset", "rate", "--rate", "5/second")
    assert "rate is both set and unset" in terminal.failed("receiver", "set", "acme.part", *both, status=2)
    assert "there is no receiver acme.nowhere" in terminal.failed(
        "receiver", "set", "acme.nowhere", "--order", "strict"
    )
    error = terminal.failed("receiver", "set", "acme.part", "--timeout-s", "100", status=2)
    assert "timeout_s: must be a number from 0.1 to 60" in error


def test_a_margin_is_the_share_of_each_rate_that_is_used(terminal: Terminal) -> None:
    put = ("receiver", "put", "acme.spared", "--url", URL, "--margin", "0.9")
    assert "--margin needs --rate; give that too" in terminal.failed(*put, status=2)
    terminal.done(*put, "--rate", "10/s,500/min")
    shown = terminal.json("receiver", "get", "acme.spared")
    assert [each["margin"] for each in shown["rate"]] == [0.9, 0.9]
    terminal.done("receiver", "set", "acme.spared", "--rate", "10/s", "--burst", "20")
    changed = terminal.done("receiver", "set", "acme.spared", "--margin", "0.5").splitlines()
    assert changed[1:] == ["  rate: 10/second, burst 20 → 10/second, burst 10, margin 0.5"]


def test_rates_of_several_flags_hold_together(terminal: Terminal) -> None:
    several = ("--rate", "10/s", "--rate", "500/min")
    terminal.done("receiver", "put", "acme.several", "--url", URL, *several, "--margin", "0.9")
    both = [(10, "second"), (500, "minute")]
    shown = terminal.json("receiver", "get", "acme.several")["rate"]
    assert [(each["limit"], each["per"]) for each in shown] == both
    terminal.done("receiver", "set", "acme.several", "--rate", "5/s")
    terminal.done("receiver", "set", "acme.several", *several)
    shown = terminal.json("receiver", "get", "acme.several")["rate"]
    assert [(each["limit"], each["per"]) for each in shown] == both


def test_adaptive_is_no_flag_and_the_error_says_how_it_is_set(terminal: Terminal) -> None:
    for command in (("put", "acme.flagless", "--adaptive", "{}"), ("set", "acme.flagless", "--adaptive")):
        said = terminal.failed("receiver", *command, status=2)
        assert "there is no --adaptive; write it as JSON, with angarium receiver edit" in said
        assert "--rate" not in said


def test_a_member_that_does_nothing_in_strict_order_is_noted(terminal: Terminal) -> None:
    text = '{"url": "https://example.com/hook", "adaptive": {"concurrency": true}, "order": "%s"}'
    note = "note: adaptive.concurrency does nothing in strict order, which has one attempt in flight"
    put = ("receiver", "put", "acme.adaptive")
    assert note in terminal.run(*put, text % "strict").stderr
    assert note not in terminal.run(*put, text % "relaxed").stderr


def test_rotate_secret_shows_the_new_one_and_the_end_of_the_old_one(terminal: Terminal) -> None:
    terminal.done("receiver", "put", "acme.rotated", "--url", URL)
    changed, secret, signing = terminal.done("receiver", "rotate-secret", "acme.rotated").splitlines()
    assert changed.startswith("changed acme.rotated (revision ")
    assert secret.startswith("secret: whsec_")
    assert re.fullmatch(r"2 secrets sign the requests, the old ones until \d{4}-\S+Z at most", signing)
    shown = terminal.json("receiver", "get", "acme.rotated")
    assert (shown["secrets"], [each["secret"] for each in shown["old_secrets"]]) == (["…"], ["…"])
    done = terminal.json("receiver", "rotate-secret", "acme.rotated", "--overlap", "0s")
    assert (done["until"], done["secrets"]) == (None, 1)
    assert "is not an age" in terminal.failed(
        "receiver", "rotate-secret", "acme.rotated", "--overlap", "soon", status=2
    )


def test_edit_offers_the_text_again_until_it_is_valid(terminal: Terminal) -> None:
    terminal.done("receiver", "put", "acme.edited", "--url", URL, "--header", "x-team=hush")
    seen = terminal.directory / "seen"

    def edited(script: str) -> subprocess.CompletedProcess[str]:
        editor = terminal.directory / "editor"
        editor.write_text(f'#!/bin/sh\ncat "$1" >> {seen}\n{script}\n')
        editor.chmod(0o700)
        terminal.environment["EDITOR"] = str(editor)
        try:
            return terminal.run("receiver", "edit", "acme.edited")
        finally:
            del terminal.environment["EDITOR"]

    assert edited("true").stdout == "unchanged: acme.edited\n"
    # Wrong at first, then corrected where the wrong text is shown again.
    wrong = """sed -i 's/^{$/{"order": "loose",/' "$1\""""
    done = edited(f'if grep -q NOT "$1"; then sed -i s/loose/relaxed/ "$1"; else {wrong}; fi')
    assert done.returncode == 0, done.stderr
    assert "not stored: order: must be relaxed or strict" in done.stderr
    assert "  order: strict (default) → relaxed" in done.stdout
    assert "// NOT STORED: order: must be relaxed or strict" in seen.read_text()
    assert "hush" not in seen.read_text()
    assert terminal.json("receiver", "get", "acme.edited")["headers"] == {"x-team": "…"}

    # Given up: the text is kept, and nothing is changed.
    done = edited('grep -q NOT "$1" || echo garbage > "$1"')
    assert done.returncode == 1
    assert "not valid JSON" in done.stderr
    kept = Path(done.stderr.rstrip().rpartition(" ")[2])
    assert kept.read_text() == "garbage\n"
    assert kept.stat().st_mode & 0o777 == 0o600
    kept.unlink()

    # Overtaken: another user changes it while the editor is open.
    theirs = f"{sys.executable} -m angarium receiver set acme.edited --concurrency 3"
    done = edited(f'sed -i s/relaxed/strict/ "$1"; {theirs}')
    assert done.returncode == 1
    assert "was changed by another user" in done.stderr
    Path(done.stderr.rstrip().rpartition(" ")[2]).unlink()
    shown = terminal.json("receiver", "get", "acme.edited")
    assert (shown["order"], shown["concurrency"]) == ("relaxed", 3)


def test_apply_shows_its_plan_and_names_what_is_wrong(terminal: Terminal) -> None:
    file = terminal.directory / "receivers.toml"
    good = '[receivers."plan.a"]\nurl = "https://example.com/a"\nsecrets = []\n'
    file.write_text(good + '[receivers."plan.b"]\norder = "any"\n')
    error = terminal.failed("apply", "-f", str(file), status=2)
    assert f"{file}: /receivers/plan.b/url: required, but missing; /receivers/plan.b/order: must be" in error
    file.write_text(good)
    plan = ["+ create plan.a"]
    assert terminal.done("apply", "-f", str(file), "--dry-run").splitlines() == plan
    assert terminal.done("apply", "-f", str(file)).splitlines() == [*plan, "stored 1, removed 0"]
    exported = terminal.done("export", "plan").encode()
    assert terminal.done("apply", "-f", "-", stdin=exported).splitlines() == [
        "= 1 stays as it is", "stored 0, removed 0",
    ]  # fmt: skip
    prune = ("apply", "-f", "-", "--tenant", "plan", "--prune")
    nothing = b'{"receivers": {}}'
    assert "discarded; confirm with --yes" in terminal.failed(*prune, status=2, stdin=nothing)
    done = terminal.json(*prune, "--yes", stdin=nothing)
    assert (done["removed"], done["failed"]) == (["plan.a"], {})


def test_a_filter_is_tried_before_it_is_set(terminal: Terminal) -> None:
    terminal.done("receiver", "put", "trial.billing", "--url", URL, "--region", "eu", "--region", "us")
    for total, region in ((1, "eu"), (200, "us"), (300, "asia")):
        terminal.done("publish", "trial", f'{{"total": {total}}}', "--type", "order", "--region", region)
    trial = ("receiver", "test-filter", "trial.billing", "--filter", "total > `100`")
    rows = [line.split("\t") for line in terminal.done(*trial).splitlines()[1:]]
    assert [row[-1] for row in rows] == [
        "not sent: filter", "sent", "not sent: region", "3 events: 1 sent, 2 not sent",
    ]  # fmt: skip
    failing = terminal.done(*trial[:-1], "length(total) > `0`", "--last", "2")
    assert "not sent: failed (length() takes a string, an array or an object, not number)" in failing
    assert failing.splitlines()[-1] == (
        "2 events: 0 sent, 2 not sent (1 because the filter could not be evaluated)"
    )
    assert terminal.json(*trial)["sent"] == 1
    assert "not JMESPath at its end" in terminal.failed(*trial[:-1], "total >", status=2)
    changed = terminal.done("receiver", "set", "trial.billing", "--filter", "total > `100`", "--region", "eu")
    assert changed.splitlines()[1:] == ["  region: eu, us → eu", "  filter: none → total > `100`"]
    error = terminal.failed("publish", "trial", "{}", "--region", "E U", status=2)
    assert "--region: 1 to 32 of a-z 0-9 -" in error


def test_a_transform_is_tried_before_it_is_set(terminal: Terminal) -> None:
    terminal.done("receiver", "put", "shape.billing", "--url", URL)
    for body in ('{"id": 7, "email": "a@example.com"}', "a@example.com"):
        terminal.done("publish", "shape", body, "--type", "order")
    trial = ("receiver", "test-transform", "shape.billing")
    assert "shape.billing has no transform; give one to try" in terminal.failed(*trial, status=2)
    for text, problem in (
        ("[]", "must be an object with keep, drop, pseudonymize"),
        ('{"dorp": []}', "dorp: unknown member; did you mean drop?"),
        ('{"drop": [1]}', "drop[0]: must be a string"),
        ('{"keep": []}', "keep: must be a list of strings, not empty"),
        ("{", "not valid JSON"),
    ):
        assert problem in terminal.failed(*trial, "--transform", text, status=2)
    given = ("--transform", '{"drop": ["/email"]}')
    rows = [line.split("\t") for line in terminal.done(*trial, *given).splitlines()[1:]]
    assert [row[-1] for row in rows] == ['{"id":7}', "not sent: it is not JSON in UTF-8"]
    assert [each["body"] for each in terminal.json(*trial, *given)["events"]] == ['{"id":7}', None]
