"""Dead letters: filtered, shown with headers and body, and the body saved as a file."""

from typing import Annotated

from litestar import Response, get
from litestar.params import FromPath, PathParameter, QueryParameter

from actors.errors import InvalidName
from actors.ids import split_receiver
from angarium.api.problems import hidden, not_found, result_of
from angarium.console.admission import AskedTenant, needs, tenant_seen
from angarium.console.console_state import InjectedConsole, InjectedSession
from angarium.console.paths import ConsoleRequest
from angarium.console.rendering.escaped_text import body_shown
from angarium.console.rendering.responses import page, saved
from angarium.operations.dead_letters.listing import newest_before
from angarium.operations.dead_letters.shown import shown_letter
from streams.buckets.api_tokens import ALL_TENANTS
from streams.dead_letters.letters import REASONS, LetterFilter
from streams.dead_letters.malformed import MALFORMED_RECEIVER

PAGE_LETTERS = 50
ANY_TENANT = "any"
"""Stands for a tenant where only the name of a receiver is checked."""
NUMBER_MAX = 2**63 - 1

LetterNumber = Annotated[int, PathParameter(ge=1, le=NUMBER_MAX)]


@get("/dead-letters", opt=needs("read"))
async def list_dead_letters(
    request: ConsoleRequest,
    console: InjectedConsole,
    session: InjectedSession,
    tenant: AskedTenant = "",
    receiver: Annotated[str, QueryParameter(max_length=64)] = "",
    reason: Annotated[str, QueryParameter(max_length=40)] = "",
    before: Annotated[int | None, QueryParameter(ge=1, le=NUMBER_MAX)] = None,
) -> Response[bytes]:
    """The dead letters of a tenant, or of all, newest first."""
    about = tenant_seen(session, tenant)
    wanted = selection(about, receiver.strip(), reason)
    with console.api.letter_limits.admit(about or ALL_TENANTS):
        found = result_of(await newest_before(console.access, wanted, PAGE_LETTERS, before))
    return page(
        request, "dead_letters.html", session, tenant=about, receiver=receiver.strip(), reason=reason,
        before=before, found=found, reasons=REASONS,
    )  # fmt: skip


def selection(tenant: str | None, receiver: str, reason: str) -> LetterFilter:
    """The selection of a form, of one tenant or of all. Raises `ProblemRaised`."""
    if reason and reason not in REASONS:
        raise hidden()
    if receiver and receiver != MALFORMED_RECEIVER:
        try:
            split_receiver(f"{tenant or ANY_TENANT}.{receiver}")
        except InvalidName as error:
            raise not_found(str(error)) from None
    return LetterFilter(
        receivers=f"{tenant or '*'}.{receiver or '*'}", reasons=frozenset({reason} if reason else ())
    )


@get("/dead-letters/{tenant:str}/{number:int}", opt=needs("read"))
async def show_dead_letter(
    request: ConsoleRequest,
    console: InjectedConsole,
    session: InjectedSession,
    tenant: FromPath[str],
    number: LetterNumber,
) -> Response[bytes]:
    """A dead letter."""
    with console.api.letter_limits.admit(tenant):
        shown = result_of(await shown_letter(console.access, number, tenant=tenant))
    return page(
        request, "dead_letter.html", session, tenant=tenant, number=number, letter=shown.letter,
        why=shown.why, body=None if shown.body is None else body_shown(shown.body),
    )  # fmt: skip


@get("/dead-letters/{tenant:str}/{number:int}/body", opt=needs("read"))
async def save_body(console: InjectedConsole, tenant: FromPath[str], number: LetterNumber) -> Response[bytes]:
    """The body of a dead letter, byte for byte, as a file that no browser shows."""
    with console.api.letter_limits.admit(tenant):
        shown = result_of(await shown_letter(console.access, number, tenant=tenant))
    if shown.body is None:
        raise hidden()
    return saved(shown.body)
