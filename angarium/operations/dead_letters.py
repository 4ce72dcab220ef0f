"""Dead letters, as `angarium dead` selects them, shows them, sends them again and drops them."""

import base64
import itertools
import time
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from typing import Any

import click

from actors.ids import check_tenant, split_receiver
from angarium import quantities
from angarium.connecting import installation, open_jetstream
from angarium.logs import instant
from angarium.settings import Settings
from angarium.terminal import output
from angarium.terminal.progress import progress
from streams.clock import SystemTime
from streams.dead_letters import redrive as redriving
from streams.dead_letters.bury import RESPONSE
from streams.dead_letters.letters import REASONS, DeadLetters, Letter, Page, Selection
from streams.dead_letters.malformed import NAME as MALFORMED_EVENTS
from streams.dead_letters.redrive import Redrive, Redriven
from streams.dead_letters.redrive_lock import Plan, Turn

PAGE = 256
DIGITS_MAX = 18
"""Of a letter's number."""

HEADINGS = ("letter", "receiver", "number", "reason", "at", "attempts", "status", "type", "id", "bytes")
NARROW = ("letter", "receiver", "reason", "at", "status", "id")
"""What 80 columns have room for."""
CUT = ("id", "receiver")

LEFT = {
    redriving.GONE: "cannot be redriven, since only the headers could be kept",
    redriving.MALFORMED: "cannot be redriven, since the event is malformed (angarium dead show tells how)",
    redriving.TOO_LARGE: "cannot be redriven, since the stream takes no events of that size any more",
    redriving.UNSURE: "may have been redriven by a command that was cut off, and what it sent is purged; "
    "drop them, or redrive them with --unsure",
    redriving.TAKEN: "cannot be redriven just now, since somebody published something else under their "
    "message id; redrive them again in two minutes, and find out who may publish there",
}

Wanted = Selection | tuple[int, ...]
"""What to look for, or the letters themselves, by their sequences."""


def wanted(which: Sequence[str], given: dict[str, Any], *, everything: bool, limit: int | None) -> Wanted:
    """The selection by arguments and flags; `everything`: all, where they say nothing.

    Raises click.UsageError, InvalidName and BadQuantity.
    """
    selected = any(given[name] for name in ("reasons", "since", "until"))
    if which and all(text.isdecimal() and len(text) <= DIGITS_MAX for text in which):
        if selected or everything or limit is not None:
            raise click.UsageError("letters are named or selected by flags, not both")
        return tuple(map(int, dict.fromkeys(which)))
    if len(which) > 1:
        raise click.UsageError("name letters by their numbers, or one receiver or tenant")
    if not (which or selected or everything):
        raise click.UsageError("which letters? name them, or a receiver or tenant, or say --all")
    return selection(which[0] if which else None, given)


def selection(receiver: str | None, given: dict[str, Any]) -> Selection:
    """The selection by receiver, tenant or nothing, together with the flags. Raises the same."""
    now = time.time()
    since, until = (given[name] and quantities.instant(given[name], now) for name in ("since", "until"))
    reasons = frozenset(given["reasons"])
    if unknown := reasons.difference(REASONS):
        raise click.UsageError(f"--reason {min(unknown)}: there is no such reason, but {', '.join(REASONS)}")
    return Selection(receivers=_pattern(receiver), reasons=reasons, since=since, until=until)


def _pattern(receiver: str | None) -> str:
    if receiver is None:
        return "*.*"
    tenant, dot, name = receiver.partition(".")
    if dot and name != MALFORMED_EVENTS:
        return ".".join(split_receiver(receiver))
    return f"{check_tenant(tenant)}.{name or '*'}"


def counted(count: int) -> str:
    return "1 letter" if count == 1 else f"{count} letters"


# ---- showing


def row(letter: Letter) -> dict[str, Any]:
    """The row of a letter in a list."""
    return {
        "letter": letter.sequence,
        "receiver": letter.receiver,
        "number": letter.number,
        "reason": letter.reason,
        "at": instant(letter.at),
        "attempts": letter.attempts,
        "status": letter.status,
        "type": letter.type,
        "id": letter.event_id,
        "bytes": None if letter.body_gone else len(letter.body),
    }


def narrow(row: dict[str, Any]) -> list[Any]:
    """The same for a terminal, to the second."""
    return [row[name] if name != "at" else f"{row['at'][:19].replace('T', ' ')}Z" for name in NARROW]


def document(letter: Letter) -> dict[str, Any]:
    """All that there is of a letter."""
    try:
        body = {"body": None if letter.body_gone else letter.body.decode()}
    except UnicodeDecodeError:
        body = {"body_base64": base64.b64encode(letter.body).decode()}
    return row(letter) | {"response": letter.response or None, "headers": letter.headers} | body


def lines(letter: Letter) -> Iterator[str]:
    """The same for people."""
    number = f" #{letter.number}" if letter.number is not None else ""
    yield f"letter {letter.sequence}: {letter.receiver}{number}, {letter.reason}, {instant(letter.at)}"
    width = max(map(len, letter.headers), default=0)
    for name, value in letter.headers.items():
        text = letter.response if name == RESPONSE else value
        yield f"  {output.visible(name):{width}}  {output.visible(text)}"
    yield ""
    if letter.body_gone:
        yield "(the body was gone before the event could be buried)"
        return
    try:
        text = letter.body.decode()
    except UnicodeDecodeError:
        size = quantities.bytes_text(len(letter.body))
        yield f"(a body of {size} that is no text; --json has it in base64)"
        return
    yield from map(output.visible, text.splitlines())


def report(done: Redriven) -> dict[str, Any]:
    """The report of a redrive, for JSON."""
    return {
        "redriven": done.redriven, "finished": done.finished, "left": done.left,
        "stopped": done.stopped or None,
    }  # fmt: skip


def summary(done: Redriven) -> Iterator[str]:
    """The same for people."""
    yield f"redriven {counted(done.redriven)}"
    if done.finished:
        yield f"{counted(len(done.finished))} had been redriven by a command that was cut off; dropped here"
    for why, sequences in done.left.items():
        named = ", ".join(map(str, sequences[:5])) + (", …" if len(sequences) > 5 else "")
        yield f"{counted(len(sequences))} ({named}) {LEFT[why]}"


# ---- doing


async def overview(settings: Settings, wanted: Selection, limit: int) -> tuple[list[dict[str, Any]], bool]:
    """A row for each letter, the newest first, at most `limit` (0: all), and whether there are more."""
    rows: list[dict[str, Any]] = []
    async with open_jetstream(settings) as js:
        letters = DeadLetters(js, installation(settings).names)
        with progress("reading") as tell:
            async for page in _told(letters.newest(wanted, await letters.end()), tell):
                rows += map(row, page)
                if 0 < limit < len(rows):
                    return rows[:limit], True
    return rows, False


async def find(settings: Settings, sequence: int) -> Letter:
    """One letter. Raises click.ClickException where there is none."""
    async with open_jetstream(settings) as js:
        letter = await DeadLetters(js, installation(settings).names).letter(sequence)
    if letter is None:
        raise click.ClickException(f"there is no letter {sequence}; angarium dead list shows all")
    return letter


async def redrive(
    settings: Settings, wanted: Wanted, limit: int | None, *, unsure_too: bool
) -> tuple[Redriven, list[int]]:
    """Send them again, at most `limit`; returns what became of them, and which named ones are not there."""
    seen: set[int] = set()
    async with open_jetstream(settings) as js:
        names = installation(settings).names
        turn = Turn(js, names, uuid.uuid4().hex, SystemTime())
        await turn.take(_note_waiting)
        work = Redrive(js, names, turn, unsure_too=unsure_too)
        await work.begin()
        seen.update(work.done.finished)
        with progress("redriving") as tell:
            async for page in _pages(DeadLetters(js, names), wanted, tell):
                seen.update(letter.sequence for letter in page)
                while page and work.done.redriven != limit and not work.done.stopped:
                    room = PAGE if limit is None else limit - work.done.redriven
                    await work.send(page[:room])
                    page = page[room:]
                if work.done.redriven == limit or work.done.stopped:
                    break
        await work.end()
    return work.done, _missing(wanted, seen)


async def drop(
    settings: Settings, wanted: Wanted, limit: int | None, agreed: Callable[[int], bool]
) -> tuple[int, list[int]]:
    """Drop them, at most `limit`, if `agreed`; returns how many, and which named ones are not there."""
    sequences: list[int] = []
    async with open_jetstream(settings) as js:
        letters = DeadLetters(js, installation(settings).names)
        with progress("reading") as tell:
            async for page in _pages(letters, wanted, tell):
                sequences += [letter.sequence for letter in page]
                if limit is not None and len(sequences) >= limit:
                    break
        missing = _missing(wanted, sequences)
        sequences = sequences[:limit]
        if not sequences or not agreed(len(sequences)):
            return 0, missing
        gone = itertools.count(1)
        with progress("dropping") as tell:
            return await letters.drop(sequences, lambda _: tell(next(gone), len(sequences))), missing


async def _pages(
    letters: DeadLetters, wanted: Wanted, tell: Callable[[int, int], None]
) -> AsyncIterator[list[Letter]]:
    """The letters that there are of those wanted; `tell` hears how many were looked at, of how many."""
    if isinstance(wanted, Selection):
        async for page in _told(letters.pages(wanted, await letters.end()), tell):
            yield page
        return
    for start in range(0, len(wanted), PAGE):
        yield await letters.letters(wanted[start : start + PAGE])
        tell(min(start + PAGE, len(wanted)), len(wanted))


async def _told(pages: AsyncIterator[Page], tell: Callable[[int, int], None]) -> AsyncIterator[list[Letter]]:
    seen = 0
    async for page in pages:
        yield page.letters
        seen += page.seen
        tell(seen, seen + page.unseen)


def _missing(wanted: Wanted, seen: Collection[int]) -> list[int]:
    return [] if isinstance(wanted, Selection) else [each for each in wanted if each not in seen]


def _note_waiting(plan: Plan, wait_s: float) -> None:
    began = instant(plan.at)
    output.note(
        f"a redrive of {began} did not end in order; waiting {wait_s:.0f} s, until it is over for certain"
    )
