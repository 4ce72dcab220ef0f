"""Ids of events, as clients may give them."""

import re

ID_TEXT = "1 to 128 of A-Z a-z 0-9 _ - :"
_ID = re.compile(r"[A-Za-z0-9_:-]{1,128}\Z")


def is_id(text: str) -> bool:
    """True if an event can have that id."""
    return _ID.match(text) is not None
