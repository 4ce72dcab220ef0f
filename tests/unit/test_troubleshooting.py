"""`docs/troubleshooting.md` explains no message that does not exist."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from angarium.node.control_requests import VERBS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
BETWEEN = re.compile(r"…|<\w+>|\d+|: |\b(?:ANGARIUM|KV)_\w+")
"""The sign for a value in a message as it is explained, or between two."""

ASSEMBLED = {
    "the installation has 64 shards, the setting shards says 32: …",
    "stream … is missing: run angarium setup", "reader.broken", "router.broken", "snapshots.broken",
}  # fmt: skip
"""Messages that the code puts together from several texts."""

LEAST = 8
"""Letters of a piece of a message that may be looked for: shorter ones are everywhere."""


@cache
def everything_said() -> str:
    """All texts in the code, one a line."""
    return "\n".join(texts())


def texts() -> Iterator[str]:
    """Every text in the code; where an f-string has a value, there is `…`."""
    packages = ("actors", "streams", "angarium")
    for tree in (ast.parse(path.read_text()) for name in packages for path in (ROOT / name).rglob("*.py")):
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                parts = (part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
                yield "".join(map(str, parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def explained(heading: str) -> list[str]:
    """The code in the first cells of the table under a heading."""
    table = PAGE.split(f"\n{heading}\n")[1].split("\n#")[0]
    cells = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    return [message for cell in cells for message in re.findall(r"`([^`]+)`", cell)]


@pytest.mark.parametrize("heading", ["## What the log says", "### Refused shards", "## What commands say"])
def test_every_explained_message_exists(heading: str) -> None:
    said = everything_said()
    pieces = [
        (message, piece.strip())
        for message in explained(heading)
        if message not in ASSEMBLED
        for piece in BETWEEN.split(message)
    ]
    assert pieces
    assert not [message for message, piece in pieces if len(piece) >= LEAST and piece not in said]


def test_the_verbs_of_control_requests_are_those_of_the_code() -> None:
    section = PAGE.split("\n### Control requests\n")[1].split("\n#")[0]
    sentence = section.split(" are ", 1)[1].split(". Requests to a node")[0]
    named = [each for each in re.findall(r"`([a-z ]+)`", sentence) if " " not in each]
    assert list(dict.fromkeys(named)) == list(VERBS)
