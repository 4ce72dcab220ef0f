"""Escapes texts from outside: everything that would move a cursor or change the direction of writing."""

import json


def visible(text: str) -> str:
    """The text with its control characters escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def visible_json(text: str) -> str:
    """JSON in one line with its control characters escaped; its value is unchanged."""
    return text if text.isprintable() else "".join(c if c.isprintable() else _unit(c) for c in text)


def _unit(c: str) -> str:
    r"""A character as `\uXXXX`; two of them beyond 16 bits."""
    return "\\u007f" if c == "\x7f" else json.dumps(c)[1:-1]
