"""`angarium publish --at` and `angarium later`, with a node that takes what they publish."""

import re
import time

import pytest

from actors.times_as_text import instant_text
from tests.support.fleet.fleet import Fleet
from tests.support.processes.commands import Terminal
from tests.support.processes.nodes import ERASURES, shortened
from tests.support.waiting import COMMAND_LOOK_S, until_true

RECEIVER = "t.shop"


async def test_a_waiting_event_is_listed_and_cancelled(fleet: Fleet, terminal: Terminal) -> None:
    await fleet.configure([RECEIVER])
    await fleet.start_ready()
    far = terminal.json("publish", "t", "{}", "--type", "order.created", "--id", "far", "--at", "2d")
    assert far["stream"] == "ANGARIUM_EVENTS"
    terminal.json("publish", RECEIVER, "{}", "--id", "near", "--at", "1h")

    async def both_wait() -> bool:
        return len(terminal.done("later", "list", "--json").splitlines()) == 2

    await until_true(both_wait, COMMAND_LOOK_S)
    heading, first, second = terminal.done("later", "list", "t").splitlines()
    assert heading.split("\t") == ["due", "id", "for", "type"]
    assert first.split("\t")[1:] == ["near", RECEIVER, "message"]
    assert second.split("\t")[1:] == ["far", "t", "order.created"]
    assert terminal.json("later", "list", "--receiver", RECEIVER)["id"] == "near"
    assert re.match(r"cancelled far, which was due at 2", terminal.done("later", "cancel", "t", "far"))
    assert terminal.done("later", "cancel", "t", "far") == "far was cancelled before\n"
    assert "no event none of t waits for its time" in terminal.failed("later", "cancel", "t", "none")
    assert terminal.json("later", "list")["id"] == "near"


async def test_an_event_is_rescheduled_under_another_id(fleet: Fleet, terminal: Terminal) -> None:
    """JetStream still knows the id of the cancelled one, and would drop the event in silence."""
    await fleet.configure([RECEIVER])
    await fleet.start_ready()
    when = instant_text(time.time() + 7200)
    at = ("publish", RECEIVER, "{}", "--id", "R1", "--at")
    terminal.done(*at, when)
    assert "(duplicate: dropped)" in terminal.done(*at, when)
    assert f"waits for another time, {when}, or was cancelled" in terminal.failed(*at, "3h")

    async def waits() -> bool:
        return terminal.done("later", "list", "--json") != ""

    await until_true(waits, COMMAND_LOOK_S)
    terminal.done("later", "cancel", "t", "R1")
    said = terminal.failed(*at, when)
    assert "the event with this id was cancelled; use another id, or wait two minutes" in said
    terminal.done("publish", RECEIVER, "{}", "--id", "R1-again", "--at", "3h")


async def test_an_event_is_delivered_when_it_is_due(fleet: Fleet, terminal: Terminal) -> None:
    await fleet.configure([RECEIVER])
    await fleet.start_ready()
    terminal.json("publish", RECEIVER, "{}", "--id", "soon", "--at", "1s")
    seen = fleet.sink.arrivals[RECEIVER]
    await fleet.until(lambda: bool(seen), "the event arrived")
    assert [(each.event_id, each.sequence) for each in seen] == [("soon", 1)]
    assert "no longer waits: its time had come" in terminal.failed("later", "cancel", "t", "soon")


@pytest.mark.parametrize(
    ("at", "why"), [("31d", "at most 30 days"), ("noon", "must be a time as in RFC 3339")]
)
def test_a_time_that_cannot_be_kept_is_wrong_usage(terminal: Terminal, at: str, why: str) -> None:
    assert why in terminal.failed("publish", "t", "{}", "--at", at, status=2)


async def test_an_event_is_erased_while_it_waits(fleet: Fleet, terminal: Terminal) -> None:
    await fleet.configure([RECEIVER])
    with shortened(ERASURES):
        await fleet.start_ready()
    terminal.json("publish", RECEIVER, '"whisper-whisper"', "--id", "gone", "--at", "1h")

    async def waits() -> bool:
        return terminal.done("later", "list", "--json") != ""

    await until_true(waits, COMMAND_LOOK_S)
    done = terminal.json("erase", "--yes", "--event", "gone", "--tenant", "t")
    assert (done["done"], done["events"], done["discarded"]) == (True, 2, 1)
    assert terminal.done("later", "list", "--json") == ""
    stored = b"".join(each.read_bytes() for each in fleet.server.directory.rglob("*.blk"))
    assert b"whisper-whisper" not in stored
    assert "gone was cancelled before" in terminal.done("later", "cancel", "t", "gone")
