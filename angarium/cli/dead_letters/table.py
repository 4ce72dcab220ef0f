"""Dead letters as `angarium dead` shows them: in a table, as a document, for people."""

import base64
from collections.abc import Iterator
from typing import Any

from actors.times_as_text import instant_text
from angarium import quantities
from angarium.operations.dead_letters.shown import ShownLetter
from angarium.terminal import output
from streams.dead_letters.letters import Letter, ListedLetter
from streams.nats.wire_names import DEAD_RESPONSE

HEADINGS = ("letter", "receiver", "number", "reason", "at", "attempts", "status", "type", "id", "bytes")
NARROW_COLUMNS = ("letter", "receiver", "reason", "at", "status", "id")
"""The columns that fit into 80 characters."""
CUT_COLUMNS = ("id", "receiver")
NAME_WIDTH_MAX = 40
"""Width of the column of header names; longer names (up to 60,000 characters) are shown in full."""


def row(letter: Letter | ListedLetter) -> dict[str, Any]:
    """The row of a letter in a list."""
    return {
        "letter": letter.position,
        "receiver": letter.receiver,
        "number": letter.sequence,
        "reason": letter.reason,
        "at": instant_text(letter.at),
        "attempts": letter.attempts,
        "status": letter.status,
        "type": letter.type,
        "id": letter.event_id,
        "bytes": None if letter.is_body_gone else letter.size,
    }


def narrow(row: dict[str, Any]) -> list[Any]:
    """The row for a terminal, to the second."""
    return [row[name] if name != "at" else f"{row['at'][:19]}Z" for name in NARROW_COLUMNS]


def document(shown: ShownLetter) -> dict[str, Any]:
    """The whole letter, for JSON."""
    letter = shown.letter
    body: dict[str, Any]
    try:
        body = {"body": None if shown.body is None else shown.body.decode()}
    except UnicodeDecodeError:
        body = {"body_base64": base64.b64encode(shown.body or b"").decode()}
    if shown.why:
        body |= {"body_hidden": shown.why}
    return row(letter) | {"response": letter.response or None, "headers": letter.headers} | body


def lines(shown: ShownLetter) -> Iterator[str]:
    """The letter for people, line by line."""
    letter = shown.letter
    number = f" #{letter.sequence}" if letter.sequence is not None else ""
    receiver = output.visible(letter.receiver)  # A producer may publish to an impossible name.
    yield f"letter {letter.position}: {receiver}{number}, {letter.reason}, {instant_text(letter.at)}"
    width = min(NAME_WIDTH_MAX, max(map(len, letter.headers), default=0))
    for name, value in letter.headers.items():
        text = letter.response if name == DEAD_RESPONSE else value
        yield f"  {output.visible(name):{width}}  {output.visible(text)}"
    yield ""
    if shown.body is None:
        yield f"({output.visible(shown.why)})"
        return
    try:
        text = shown.body.decode()
    except UnicodeDecodeError:
        size = quantities.bytes_text(len(shown.body))
        yield f"(a binary body of {size}; --json shows it in base64)"
        return
    yield from map(output.visible, text.splitlines())
