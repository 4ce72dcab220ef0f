"""Output at a terminal: no wider than its columns, and no colours if they are not wanted."""

import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from rich.cells import cell_len

ROOT = Path(__file__).parents[2]
LETTERS = """
from angarium.cli.dead_letters.table import CUT_COLUMNS, HEADINGS, NARROW_COLUMNS, narrow
from angarium.terminal import output
row = {
    "letter": 123456, "receiver": "acme.a-receiver-with-a-long-name", "number": 7,
    "reason": "unknown_receiver", "at": "2026-01-31T12:00:00.123Z", "attempts": 5, "status": 503,
    "type": "order.created",
    "id": "0190f5a2-7e3c-7a0e-9c57-3f0d1e2b4c5d", "bytes": 1024,
}
"""
NARROW = "output.say_table(NARROW_COLUMNS, [narrow(row)] * 2, cut=CUT_COLUMNS)"
WIDE = "output.say_table(HEADINGS, [list(row.values())] * 2, wide=True)"
RECEIVERS = """
from msgspec.structs import replace
from angarium import quantities
from angarium.cli.receivers.table import CUT_COLUMNS, NARROW_COLUMNS, cells
from angarium.operations.receiver_list.listing import ReceiverFindings, listed
from angarium.terminal import output
row = replace(listed(ReceiverFindings(
    "acme.a-receiver-with-a-long-name",
    b'{"url": "https://hooks.receivers.example.com/a/long/path", "rate": {"limit": 10, "per": "second"}}',
)), phase="misconfigured", waiting=1234567, oldest_at="2026-01-31T12:00:00.123Z")
unknown = replace(row, phase=None, waiting=None, oldest_at=None)
now = quantities.parse_time("2026-02-02T14:00:00Z", 0.0)
output.say_table(
    NARROW_COLUMNS, [cells(each, NARROW_COLUMNS, now) for each in (row, unknown)], cut=CUT_COLUMNS
)
"""
COLOURED = """
import click
from angarium.terminal import output
from angarium.terminal.progress import progress
output.say(click.style("ok", fg="green"))
output.say_table(("a", "b"), [(1, 2)])
with progress("reading") as on_progress:
    on_progress(1, 2)
"""
TOP = """
from angarium.cli.live.top import show
from angarium.operations.receiver_list.top import TopScreen
screen = TopScreen(
    at="2026-01-31T12:00:00.123Z", count=1, behind=0, waiting=0, in_per_s=0.0, out_per_s=0.0, receivers=[],
    notes=[],
)
for _ in range(2):
    show(screen, wide=False, again=True)
"""
STRANGE = """
from angarium.terminal import output
rows = [("日本語" * 20, "|"), ("a\\x1b[2J" + "b" * 90, "|"), ("e\\u0301" * 60, "|")]
output.say_table(("text", "|"), rows, cut=("text",))
"""
ROOMS = """
from angarium.cli.installation import setup
from angarium.operations.installation.sizing import StreamRoom
names = ("EVENTS", "DELIVERIES", "JOURNAL", "DEAD")
keeps = "events to be routed, and a day of routed ones"
setup.say([], [StreamRoom(f"ANGARIUM_{name}", 4 << 30, keeps) for name in names])
"""
TOKENS = """
from datetime import UTC, datetime
from angarium.cli.installation.tokens import say
from angarium.operations.tokens.listing import ListedToken
at = datetime(2026, 1, 31, 12, tzinfo=UTC)
token = ListedToken(
    id="rhz3dqgpbmba", tenant="a-tenant-with-a-long-name", scopes=("publish", "read", "manage", "operate"),
    rate=None, note="for the shop", created_at=at, expires_at=at, used_at=at, created_by="root@a-machine",
)
say([token], wide=False)
"""
MINUTES = """
from angarium.cli.ledger_queries.minutes import cells, say
from angarium.operations.ledger_queries.minutes import Minute
minute = Minute(
    at="2026-01-31T12:00:00.000Z", attempts=123456, delivered=123456, failed=123456, throttled=123456,
    dead=123456, latency_ms=1234.5, latency_ms_max=12345.6, late_s=1234.5, late_s_max=12345.6,
    posts=123456,
)
say([cells(minute)], wide=False)
"""
TAIL = """
from angarium.cli.live.tail import shown_rows
from angarium.operations.live.tail import TailedAttempt
attempt = TailedAttempt(
    id="1-0", at="2026-01-31T12:00:00.123Z", receiver="acme.a-receiver-with-a-long-name", verdict="failed",
    sequence=123456, event_id="0190f5a2-7e3c-7a0e-9c57-3f0d1e2b4c5d", type="order.created", attempt=12,
    error="refused: connection refused by 192.0.2.1:443", latency_ms=12345.6,
)
"""
WRAPPED = """
from angarium.terminal import output
from angarium.cli.installation.doctor import COLOURS
word = output.styled(f"{'warning':7}", COLOURS["warning"])
output.say_wrapped(" ".join(["a word and 日本語"] * 9), f"{word}  {'acme.billing':12}  ")
output.say_wrapped("x" * 200)
output.say_wrapped("y y", "a" * 79)
"""
INTERRUPTED = """
import asyncio, os, signal
from angarium.terminal.progress import progress
from angarium.terminal.run import run
async def work():
    with progress("replaying"):
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(60)
run(work(), interrupted="interrupted; go on with --resume\\n")
"""
ASKING = """
import os, signal
import click
from angarium.terminal.run import confirm, run
click.termui.visible_prompt_func = lambda prompt: os.kill(os.getpid(), signal.SIGINT) or "y"
async def work():
    confirm("erase it")
run(work(), interrupted="interrupted; it continues\\n")
"""
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def seen(program: str, **environment: str) -> str:
    """Returns the output at a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    usual = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], "COLUMNS": "80", "TERM": "xterm-256color"}
    sent = bytearray()
    with subprocess.Popen(
        [sys.executable, "-c", program], env=usual | environment, stdin=theirs, stdout=theirs, stderr=theirs
    ):
        os.close(theirs)
        # When no process writes to a terminal any more, reading from it is an error on Linux.
        with os.fdopen(ours, "rb", buffering=0) as screen, suppress(OSError):
            while data := screen.read(4096):
                sent += data
    return sent.decode().replace("\r\n", "\n")


def test_letters_fit_80_columns_with_their_ids_cut() -> None:
    lines = ESCAPE.sub("", seen(LETTERS + NARROW)).splitlines()
    assert len(lines) == 3
    assert max(map(len, lines)) <= 80
    assert lines[1].split() == [
        "123456", "acme.a-receiv…", "unknown_receiver", "2026-01-31T12:00:00Z", "503", "0190f5a…"
    ]  # fmt: skip
    assert [lines[0].index(name) for name in ("reason", "at", "id")] == [
        lines[1].index(text) for text in ("unknown_receiver", "2026", "0190")
    ]


def test_letters_are_shown_in_full_where_there_is_room() -> None:
    assert "0190f5a2-7e3c-7a0e-9c57-3f0d1e2b4c5d" in seen(LETTERS + NARROW, COLUMNS="140")


def test_wide_cuts_nothing() -> None:
    lines = ESCAPE.sub("", seen(LETTERS + WIDE)).splitlines()
    assert len(lines) == 3
    assert "acme.a-receiver-with-a-long-name" in lines[1]
    assert "0190f5a2-7e3c-7a0e-9c57-3f0d1e2b4c5d  1024" in lines[1]


def test_receivers_fit_80_columns_and_unknown_values_are_not_zero() -> None:
    lines = ESCAPE.sub("", seen(RECEIVERS)).splitlines()
    assert len(lines) == 3
    assert max(map(len, lines)) <= 80
    assert lines[1].split() == [
        "acme.a-receiver-with-a-lon…", "misconfigured", "1234567", "2d", "10/second", "https:/…"
    ]  # fmt: skip
    assert lines[2].split()[1:4] == ["-", "-", "-"]


def test_tokens_fit_80_columns_and_their_ids_are_never_cut() -> None:
    *lines, note = ESCAPE.sub("", seen(TOKENS)).splitlines()
    assert len(lines) == 2
    assert note == "note: 4 columns left out (rate, created, by, note): --wide shows them"
    assert max(map(len, lines)) <= 80
    assert lines[1].startswith("rhz3dqgpbmba  a-tenant-with-a-")
    assert lines[1].endswith("2026-01-31T12:00Z  2026-01-31T12:00Z")


def test_minutes_fit_80_columns_in_a_line_each() -> None:
    *lines, note = ESCAPE.sub("", seen(MINUTES)).splitlines()
    assert len(lines) == 2
    assert max(map(len, lines)) <= 80
    assert lines[1].split() == ["2026-01-31T12:00Z", *["123456"] * 4, "1.23", "s", "1,234", "s"]
    assert note == "note: 4 columns left out (posts, throttled, longest, most late): --wide shows them"


def test_minutes_have_all_columns_where_there_is_room() -> None:
    lines = ESCAPE.sub("", seen(MINUTES, COLUMNS="120")).splitlines()
    assert len(lines) == 2
    assert lines[1].split()[-8:] == ["1.23", "s", "12.3", "s", "1,234", "s", "12,346", "s"]


def test_followed_attempts_fit_80_columns_in_a_line_each() -> None:
    lines = ESCAPE.sub("", seen(TAIL + "shown_rows(wide=False)(attempt)")).splitlines()
    assert len(lines) == 2
    assert max(map(len, lines)) <= 80
    assert lines[1].split() == [
        "12:00:00", "acme.a-recei…", "123456", "12", "refused:", "connecti…", "12.3", "s", "0190f5a2-7e3c…"
    ]  # fmt: skip
    assert [lines[0].index(name) for name in ("receiver", "outcome", "event")] == [
        lines[1].index(text) for text in ("acme", "refused", "0190")
    ]
    (_, wide) = ESCAPE.sub("", seen(TAIL + "shown_rows(wide=True)(attempt)")).splitlines()
    assert wide.startswith("2026-01-31T12:00:00.123Z  acme.a-receiver-with-a-long-name  123456")
    assert wide.endswith("order.created 0190f5a2-7e3c-7a0e-9c57-3f0d1e2b4c5d")


def test_words_that_do_not_fit_continue_below() -> None:
    *lines, long, narrow, rest = ESCAPE.sub("", seen(WRAPPED)).splitlines()
    assert max(map(cell_len, lines)) <= 80
    assert lines[0].startswith("warning  acme.billing  a word and")
    assert len(lines) > 2
    assert all(each.startswith(" " * 23 + "a word") or each[23] != " " for each in lines[1:])
    assert all(each[:23].isspace() for each in lines[1:])
    assert long == "x" * 200
    assert (narrow, rest) == ("a" * 79 + "y", "    y")


def test_an_interrupted_command_gives_the_cursor_back_and_says_how_to_go_on() -> None:
    sent = seen(INTERRUPTED)
    assert sent.endswith("interrupted; go on with --resume\n")
    assert sent.rindex("\x1b[?25h") > sent.rindex("\x1b[?25l")


def test_a_command_that_is_interrupted_while_it_asks_says_that_nothing_was_changed() -> None:
    assert seen(ASKING).endswith("\nangarium: interrupted; nothing was changed\n")


@pytest.mark.parametrize("environment", [{}, {"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=str)
def test_tables_align_with_any_content(environment: dict[str, str]) -> None:
    """Wide characters take two columns, combining ones none, and escapes as many as are seen."""
    lines = ESCAPE.sub("", seen(STRANGE, **environment)).splitlines()
    assert len(lines) == 4
    assert max(map(cell_len, lines)) <= 80
    assert len({cell_len(line[: line.index("|")]) for line in lines}) == 1
    assert "日本語" in lines[1]
    assert r"\x1b[2J" in lines[2]


def test_the_output_of_setup_fits_80_columns() -> None:
    lines = ESCAPE.sub("", seen(ROOMS)).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[2].split() == ["stream", "room", "keeps"]
    assert {line.index("4 GiB") for line in lines[3:7]} == {lines[2].index("room")}


def test_a_terminal_is_given_colours() -> None:
    assert "\x1b[32mok" in seen(COLOURED)
    assert "\x1b[1ma" in seen(COLOURED)


def test_no_color_takes_colours_and_bold_letters_out() -> None:
    sent = seen(COLOURED, NO_COLOR="1")
    assert not COLOUR.search(sent)
    assert "reading" in sent


@pytest.mark.parametrize("environment", [{}, {"NO_COLOR": "1"}], ids=str)
def test_top_redraws_with_and_without_colours(environment: dict[str, str]) -> None:
    sent = seen(TOP, **environment)
    assert sent.count("\x1b[H\x1b[2J") == 2
    assert bool(COLOUR.search(sent)) == (not environment)


def test_top_shows_one_table_below_the_other_on_a_dumb_terminal() -> None:
    sent = seen(TOP, TERM="dumb")
    assert sent.count("receiver  ") == 2
    assert "\x1b" not in sent


def test_an_empty_no_color_counts_as_none() -> None:
    assert "\x1b[32mok" in seen(COLOURED, NO_COLOR="")


@pytest.mark.parametrize("term", ["dumb", "unknown"])
def test_a_dumb_terminal_gets_nothing_but_lines(term: str) -> None:
    assert seen(COLOURED, TERM=term) == "ok\na  b\n1  2\n"
