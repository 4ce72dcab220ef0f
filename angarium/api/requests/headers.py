"""Headers of requests, by their names."""

from collections.abc import Iterable

from angarium.api.problems import ProblemRaised

Headers = dict[bytes, bytes]
_SEVERAL = b"\0several"
"""Stands for the value of a header that comes twice with different values."""


def headers_by_name(pairs: Iterable[tuple[bytes, bytes]]) -> Headers:
    """The headers by their names, which are in lower case."""
    found: Headers = {}
    for name, value in pairs:
        known = found.get(name)
        if known is None:
            found[name] = value
        elif known != value:
            found[name] = _SEVERAL
    return found


def header(headers: Headers, name: bytes) -> str:
    """The value of a header, or nothing. Raises `ProblemRaised` if it comes twice and differs."""
    value = headers.get(name)
    if value is None:
        return ""
    if value is _SEVERAL:
        raise ProblemRaised(400, "not-http", f"the header {name.decode()} occurs several times; send one")
    return value.decode("latin-1").strip()
