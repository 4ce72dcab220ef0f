"""Pages of a list: how long they are, and the cursors that lead from one to the next."""

from typing import Annotated

from litestar.params import QueryParameter

from angarium.operations.jobs.listing import JobPageStart
from angarium.operations.ledger_queries.page_start import PageStart
from streams.timed.listing import ListKey

PAGE_MAX = 200

PageSize = Annotated[int, QueryParameter(ge=1, le=PAGE_MAX)]
TimeCursor = Annotated[
    str | None,
    QueryParameter(
        pattern=r"^[0-9]{1,15}-[0-9]{1,4}$", description="The `next_cursor` of the previous page."
    ),
]
MinuteCursor = Annotated[
    int | None, QueryParameter(ge=0, le=10**15, description="The `next_cursor` of the previous page.")
]
NameCursor = Annotated[
    str,
    QueryParameter(
        pattern=r"^(after:[A-Za-z0-9_-]{1,64})?$", description="The `next_cursor` of the previous page."
    ),
]
JobCursor = Annotated[
    str | None,
    QueryParameter(
        pattern=r"^[0-9]{1,17}-(replay|redrive)\.[A-Za-z0-9_.-]{1,130}\.[0-9a-f]{16}$",
        description="The `next_cursor` of the previous page.",
    ),
]

LaterCursor = Annotated[
    str | None,
    QueryParameter(
        pattern=r"^[0-9]{1,12}-[0-9]{1,19}$", description="The `next_cursor` of the previous page."
    ),
]


def after_name(cursor: str) -> str:
    """The name after which a page begins; empty for the first page."""
    return cursor.partition(":")[2]


def cursor_after(name: str) -> str:
    """The cursor of the page after a name."""
    return f"after:{name}"


def job_page_start_of(cursor: str | None) -> JobPageStart | None:
    """The place that a cursor names in the list of jobs."""
    if cursor is None:
        return None
    began_us, _, job = cursor.partition("-")
    return JobPageStart(int(began_us), job)


def cursor_of_job(place: JobPageStart | None) -> str | None:
    """The cursor that names a place in the list of jobs."""
    return None if place is None else f"{place.began_us}-{place.id}"


def list_key_of(cursor: str | None) -> ListKey | None:
    """The key that a cursor names in the list of waiting events."""
    if cursor is None:
        return None
    second, _, position = cursor.partition("-")
    return ListKey(int(second), int(position))


def cursor_of_entry(key: ListKey | None) -> str | None:
    """The cursor that names a key in the list of waiting events."""
    return None if key is None else f"{key.second}-{key.position}"


def start_of(cursor: str | None) -> PageStart | None:
    """The place that a cursor names."""
    if cursor is None:
        return None
    at, _, position = cursor.partition("-")
    return PageStart(int(at), int(position))


def cursor_of(start: PageStart | None) -> str | None:
    """The cursor that names a place."""
    return None if start is None else f"{start.at}-{start.skip}"
