"""Texts from outside in a harmless form: bounded, and without characters that a browser would obey.

Templates escape HTML by themselves. What is left are control characters, and characters that turn the
direction of writing, so that a text seems to say something else; they are shown as escapes.
"""

import re

from markupsafe import Markup
from msgspec import Struct

VALUE_CHARS_MAX = 2048
"""Characters of one value in a page; a body has a limit of its own."""
BODY_BYTES_MAX = 32 << 10
"""Bytes of a body in a page; all of it can be saved as a file."""
CHARACTER_BYTES_MAX = 4
"""Bytes of a character of UTF-8, which a cut may go through."""
_LINES = "\n\t"
_INSTANT = re.compile(r"\b(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(\.\d{3})?Z", re.ASCII)
_TIME = Markup('<time datetime="{}">{} {} UTC</time>')


class ShownBody(Struct, frozen=True):
    """A body as a page shows it: its text, its size in bytes, and whether the text is only its beginning."""

    text: str
    size: int
    is_cut: bool
    is_binary: bool


def one_value(text: str) -> str:
    """A value in one line, cut if it is long."""
    return visible(cut(text))


def cut(text: str, most: int = VALUE_CHARS_MAX) -> str:
    """The text, or its beginning and how much is missing."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text) - most:,} more characters)"


def visible(text: str, keeping: str = "") -> str:
    """The text with characters that do not print as escapes, except those of `keeping`."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in keeping else _escaped(each) for each in text)


def with_times(text: str) -> Markup:
    """A sentence as markup, in which instants are times like all others of a page."""
    shown, end, text = Markup(), 0, one_value(text)
    for found in _INSTANT.finditer(text):
        shown += text[end : found.start()]
        shown += _TIME.format(found[0], found[1], found[2])
        end = found.end()
    return shown + text[end:]


def body_shown(body: bytes, bytes_max: int = BODY_BYTES_MAX) -> ShownBody:
    """A body in lines, as it was sent; bytes that are not UTF-8 are shown as escapes."""
    part = body[:bytes_max]
    is_cut = len(body) > len(part)
    try:
        text, is_binary = part.decode(), False
    except UnicodeDecodeError as error:
        is_binary = not (is_cut and error.end == len(part) and len(part) - error.start < CHARACTER_BYTES_MAX)
        text = part.decode("utf-8", "backslashreplace" if is_binary else "ignore")
    return ShownBody(visible(text, keeping=_LINES), len(body), is_cut, is_binary)


def _escaped(each: str) -> str:
    return each.encode("unicode_escape").decode("ascii")
