"""The words of `angarium dead`: which letters are meant, and how letters and their fate are shown."""

import base64
import time
from collections.abc import Iterator, Sequence
from typing import Any

import click

from actors.ids import check_tenant, split_receiver
from angarium import quantities
from angarium.logs import instant
from angarium.operations.dead_letters.pages import Wanted
from angarium.terminal import output
from streams.dead_letters.letters import REASONS, Letter, Selection
from streams.dead_letters.malformed import MALFORMED_RECEIVER as MALFORMED_EVENTS
from streams.nats.headers import DEAD_RESPONSE
from streams.resending import redrive as redriving
from streams.resending.redrive import Redriven

DIGITS_MAX = 18
"""Digits of a letter's number, at most."""

HEADINGS = ("letter", "receiver", "number", "reason", "at", "attempts", "status", "type", "id", "bytes")
NARROW_COLUMNS = ("letter", "receiver", "reason", "at", "status", "id")
"""The columns that fit into 80 characters."""
CUT_COLUMNS = ("id", "receiver")
NAME_WIDTH_MAX = 40
"""Columns for the names of headers; a longer name, which may have 60,000, is shown whole all the same."""

WHY_LEFT = {
    redriving.GONE: "cannot be redriven, since only the headers could be kept",
    redriving.MALFORMED: "cannot be redriven, since the event is malformed (angarium dead show says why)",
    redriving.TOO_LARGE: "cannot be redriven, since the stream no longer accepts events of that size",
    redriving.UNSURE: "may have been redriven by an interrupted command, and what it sent is purged; "
    "drop them, or redrive them with --unsure",
    redriving.TAKEN: "cannot be redriven now, since another publisher used their message id for something "
    "else; redrive them again in two minutes, and check who may publish there",
}


def wanted(which: Sequence[str], given: dict[str, Any], *, everything: bool, limit: int | None) -> Wanted:
    """The selection by arguments and flags; `everything`: all, where they say nothing.

    Raises click.UsageError, InvalidName and BadQuantity.
    """
    selected = any(given[name] for name in ("reasons", "since", "until"))
    if which and all(text.isdecimal() and len(text) <= DIGITS_MAX for text in which):
        if selected or everything or limit is not None:
            raise click.UsageError("give letter numbers or selecting flags, not both")
        return tuple(map(int, dict.fromkeys(which)))
    if len(which) > 1:
        raise click.UsageError("give letter numbers, or one receiver or tenant")
    if not (which or selected or everything):
        raise click.UsageError("which letters? give numbers, a receiver, a tenant, or --all")
    return selection(which[0] if which else None, given)


def selection(receiver: str | None, given: dict[str, Any]) -> Selection:
    """The selection by receiver, tenant or nothing, together with the flags. Raises the same."""
    now = time.time()
    since, until = (given[name] and quantities.instant(given[name], now) for name in ("since", "until"))
    reasons = frozenset(given["reasons"])
    if unknown := reasons.difference(REASONS):
        raise click.UsageError(f"--reason {min(unknown)}: unknown reason; use one of {', '.join(REASONS)}")
    return Selection(receivers=_pattern(receiver), reasons=reasons, since=since, until=until)


def _pattern(receiver: str | None) -> str:
    if receiver is None:
        return "*.*"
    tenant, dot, name = receiver.partition(".")
    if dot and name != MALFORMED_EVENTS:
        return ".".join(split_receiver(receiver))
    return f"{check_tenant(tenant)}.{name or '*'}"


def not_there(positions: Sequence[int]) -> str:
    """The complaint that letters which were named are not there."""
    return f"there is no letter {', '.join(map(str, positions))}"


def counted(count: int) -> str:
    return "1 letter" if count == 1 else f"{count} letters"


# ---- showing


def row(letter: Letter) -> dict[str, Any]:
    """The row of a letter in a list."""
    return {
        "letter": letter.position,
        "receiver": letter.receiver,
        "number": letter.sequence,
        "reason": letter.reason,
        "at": instant(letter.at),
        "attempts": letter.attempts,
        "status": letter.status,
        "type": letter.type,
        "id": letter.event_id,
        "bytes": None if letter.body_gone else len(letter.body),
    }


def narrow(row: dict[str, Any]) -> list[Any]:
    """The row for a terminal, to the second."""
    return [row[name] if name != "at" else f"{row['at'][:19].replace('T', ' ')}Z" for name in NARROW_COLUMNS]


def document(letter: Letter) -> dict[str, Any]:
    """All that there is of a letter."""
    try:
        body = {"body": None if letter.body_gone else letter.body.decode()}
    except UnicodeDecodeError:
        body = {"body_base64": base64.b64encode(letter.body).decode()}
    return row(letter) | {"response": letter.response or None, "headers": letter.headers} | body


def lines(letter: Letter) -> Iterator[str]:
    """The letter for people, line by line."""
    number = f" #{letter.sequence}" if letter.sequence is not None else ""
    receiver = output.visible(letter.receiver)  # A producer may publish to an impossible name.
    yield f"letter {letter.position}: {receiver}{number}, {letter.reason}, {instant(letter.at)}"
    width = min(NAME_WIDTH_MAX, max(map(len, letter.headers), default=0))
    for name, value in letter.headers.items():
        text = letter.response if name == DEAD_RESPONSE else value
        yield f"  {output.visible(name):{width}}  {output.visible(text)}"
    yield ""
    if letter.body_gone:
        yield "(the body was gone before the dead letter was stored)"
        return
    try:
        text = letter.body.decode()
    except UnicodeDecodeError:
        size = quantities.bytes_text(len(letter.body))
        yield f"(a binary body of {size}; --json shows it in base64)"
        return
    yield from map(output.visible, text.splitlines())


def report(done: Redriven) -> dict[str, Any]:
    """The report of a redrive, for JSON."""
    return {
        "redriven": done.redriven, "finished": done.finished, "left": done.left,
        "stopped": done.stopped or None,
    }  # fmt: skip


def summary(done: Redriven) -> Iterator[str]:
    """The result of a redrive for people."""
    yield f"redriven {counted(done.redriven)}"
    if done.finished:
        yield f"{counted(len(done.finished))} had been redriven by an interrupted command; now dropped here"
    for why, positions in done.left.items():
        named = ", ".join(map(str, positions[:5])) + (", …" if len(positions) > 5 else "")
        yield f"{counted(len(positions))} ({named}) {WHY_LEFT[why]}"


def waiting(began_at: float, wait_s: float) -> str:
    """The note that a redrive waits for another one's end."""
    began = instant(began_at)
    return f"a redrive started {began} was interrupted; waiting {wait_s:.0f} s to be sure that it has ended"
