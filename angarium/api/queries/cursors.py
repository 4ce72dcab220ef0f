"""Pages of a list: how long they are, and the cursors that lead from one to the next."""

from typing import Annotated

from litestar.params import QueryParameter

from angarium.operations.records.pages import PageStart

PAGE_MAX = 200

Limit = Annotated[int, QueryParameter(ge=1, le=PAGE_MAX)]
TimeCursor = Annotated[
    str | None,
    QueryParameter(pattern=r"^[0-9]{1,15}-[0-9]{1,4}$", description="`next_cursor` of the page before."),
]


def start_of(cursor: str | None) -> PageStart | None:
    """The place that a cursor names."""
    if cursor is None:
        return None
    at, _, told = cursor.partition("-")
    return PageStart(int(at), int(told))


def cursor_of(start: PageStart | None) -> str | None:
    """The cursor that names a place."""
    return None if start is None else f"{start.at}-{start.told}"
