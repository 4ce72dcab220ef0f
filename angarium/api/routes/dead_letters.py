"""Dead letters of a tenant: listed, shown, dropped, sent again.

A request sends a thousand letters at most while its client waits. More become a job
(`angarium.operations.jobs`), unless the client asks for a page.
"""

import base64
from datetime import datetime
from typing import Annotated, Any

import msgspec
from litestar import Request, Response, delete, get, post
from litestar.params import FromPath, PathParameter, QueryParameter

from actors.ids import split_receiver
from actors.times_as_text import instant_text
from angarium.access import Access
from angarium.api.admission.gate import needs
from angarium.api.api_state import InjectedAccess, InjectedApi
from angarium.api.openapi.dead_letters import (
    DROP_DEAD_LETTER,
    GET_DEAD_LETTER,
    LETTERS_MAX,
    LIST_DEAD_LETTERS,
    NUMBER_MAX,
    REDRIVE_DEAD_LETTERS,
    DeadLetterPage,
    LetterDocument,
    LetterItem,
    Reason,
    RedriveRequest,
    RedriveResult,
)
from angarium.api.problems import Fault, invalid, result_of
from angarium.api.queries.cursors import PageSize
from angarium.api.queries.times import Moment, moment, seconds
from angarium.api.requests.bodies import decoded, json_body
from angarium.api.requests.headers import headers_by_name
from angarium.api.routes.jobs import accepted
from angarium.api.routes.publishing import idempotency_key
from angarium.operations.dead_letters.drop import drop
from angarium.operations.dead_letters.find import find_letter, owned_letters
from angarium.operations.dead_letters.listing import LetterNumbers, newest_before, oldest_after
from angarium.operations.dead_letters.redrive import redrive
from angarium.operations.dead_letters.shown import shown_letter
from angarium.operations.jobs.begin import begin_redrive, job_under_key
from angarium.operations.jobs.plans import JobDocument
from angarium.operations.live.tail import is_known
from streams.dead_letters.letters import Letter, LetterFilter, ListedLetter
from streams.dead_letters.malformed import MALFORMED_RECEIVER

PATH = "/v1/tenants/{tenant:str}/dead-letters"

REDRIVE_PATIENCE_S = 20.0
"""Time in which a redrive waits for those of other processes; each rests after every request or page."""

Number = Annotated[int, PathParameter(ge=1, le=NUMBER_MAX)]


@get(PATH, opt=needs("read"), **LIST_DEAD_LETTERS)
async def list_dead_letters(
    tenant: FromPath[str],
    api: InjectedApi,
    receiver: Annotated[str | None, QueryParameter(max_length=64)] = None,
    reason: Annotated[Reason | None, QueryParameter()] = None,
    since: Moment = None,
    until: Moment = None,
    limit: PageSize = 50,
    cursor: Annotated[int | None, QueryParameter(ge=1, le=NUMBER_MAX)] = None,
) -> DeadLetterPage:
    """List dead letters, newest first."""
    wanted = _selection(
        tenant, receiver, (reason,) if reason else (), moment("since", since), moment("until", until)
    )
    with api.letter_limits.admit(tenant):
        page = result_of(await newest_before(api.access, wanted, limit, cursor))
    return DeadLetterPage(letters=[_item(each) for each in page.letters], next_cursor=_cursor(page.next))


@get(f"{PATH}/{{number:int}}", opt=needs("read"), **GET_DEAD_LETTER)
async def get_dead_letter(tenant: FromPath[str], number: Number, api: InjectedApi) -> LetterDocument:
    """Show a dead letter."""
    with api.letter_limits.admit(tenant):
        shown = result_of(await shown_letter(api.access, number, tenant=tenant))
    letter, (text, binary) = shown.letter, _body(shown.body)
    return LetterDocument(
        **msgspec.structs.asdict(_item(letter)), response=letter.response or None, headers=letter.headers,
        body=text, body_base64=binary, body_hidden=shown.why or None,
    )  # fmt: skip


@delete(f"{PATH}/{{number:int}}", status_code=200, opt=needs("manage"), **DROP_DEAD_LETTER)
async def drop_dead_letter(tenant: FromPath[str], number: Number, api: InjectedApi) -> LetterItem:
    """Delete a dead letter permanently."""
    with api.letter_limits.admit(tenant):
        letter = result_of(await find_letter(api.access, number, tenant=tenant))
        result_of(await drop(api.access, (number,)))
    return _item(letter)


@post(f"{PATH}/redrive", status_code=200, opt=needs("manage"), **REDRIVE_DEAD_LETTERS)
async def redrive_dead_letters(
    request: Request[Any, Any, Any], tenant: FromPath[str], api: InjectedApi, access: InjectedAccess
) -> Response[RedriveResult | JobDocument]:
    """Send dead letters to their receivers again."""
    given = decoded(await json_body(request, api.limits), RedriveRequest)
    key = idempotency_key(headers_by_name(request.scope["headers"]))
    with api.control_limits.admit(tenant):
        if key and (known := result_of(await job_under_key(api.access, "redrive", tenant, key))) is not None:
            return accepted(api, known)
        with api.letter_limits.admit(tenant):
            wanted = await _wanted(api.access, tenant, given)
        if given.receiver is not None and not (wanted.positions or given.cursor):
            await _check_receiver(api.access, tenant, given.receiver)
        if wanted.next is not None and given.limit is None and given.cursor is None:
            selection = _selection(tenant, given.receiver, given.reasons, given.since, given.until)
            return accepted(api, result_of(await begin_redrive(access, tenant, selection, key)))
        async with api.redrive_turns.turn(tenant), api.jobs.redrives_here:
            return Response(await _sent(api.access, given, wanted))


async def _check_receiver(access: Access, tenant: str, name: str) -> None:
    """Raises `ProblemRaised` if a receiver does not exist and has no letters: its name is misspelled."""
    receiver = f"{tenant}.{name}"
    if name == MALFORMED_RECEIVER or result_of(await is_known(access, receiver)):
        return
    if not result_of(await newest_before(access, LetterFilter(receivers=receiver), 1, None)).letters:
        detail = f"there is no receiver {receiver}, and it has no dead letters"
        raise invalid(Fault(pointer="/receiver", detail=detail))


async def _sent(access: Access, given: RedriveRequest, wanted: LetterNumbers) -> RedriveResult:
    """Send these letters; returns the result for each. Raises `ProblemRaised`."""
    missing = sorted({*(given.numbers or ())} - {*wanted.positions})
    if not wanted.positions:
        return RedriveResult(
            redriven=0, left={}, missing=missing, stopped=None, next_cursor=_cursor(wanted.next)
        )
    sent = result_of(await redrive(access, wanted.positions, patience_s=REDRIVE_PATIENCE_S)).done
    following = _cursor(wanted.next)
    if sent.stopped and given.numbers is None:
        following = given.cursor or "0"
    return RedriveResult(
        redriven=sent.redriven, left=sent.left_out, missing=missing, stopped=sent.stopped or None,
        next_cursor=following,
    )  # fmt: skip


async def _wanted(access: Access, tenant: str, given: RedriveRequest) -> LetterNumbers:
    """The letters that a request means; none belongs to another tenant. Raises `ProblemRaised`."""
    selected = given.receiver is not None or given.reasons or given.since or given.until
    if given.all and selected:
        raise invalid(Fault(pointer="/all", detail="`all` cannot be combined with a selection"))
    if given.numbers is not None:
        if selected or given.all or given.cursor:
            raise invalid(Fault(pointer="/numbers", detail="`numbers` cannot be combined with a selection"))
        return LetterNumbers(result_of(await owned_letters(access, given.numbers, tenant)), None)
    if not (selected or given.all):
        detail = "select letters with `numbers`, `receiver`, `reasons`, `since` or `until`, or set `all`"
        raise invalid(Fault(pointer="/all", detail=detail))
    wanted = _selection(tenant, given.receiver, given.reasons, given.since, given.until)
    return result_of(await oldest_after(access, wanted, given.limit or LETTERS_MAX, int(given.cursor or 0)))


def _selection(
    tenant: str,
    receiver: str | None,
    reasons: tuple[Reason, ...],
    since: datetime | None,
    until: datetime | None,
) -> LetterFilter:
    """The selection among the letters of a tenant. Raises InvalidName."""
    if receiver is not None and receiver != MALFORMED_RECEIVER:
        split_receiver(f"{tenant}.{receiver}")
    return LetterFilter(
        receivers=f"{tenant}.{receiver or '*'}",
        reasons=frozenset(reasons),
        since=None if since is None else seconds(since),
        until=None if until is None else seconds(until),
    )


def _cursor(position: int | None) -> str | None:
    return None if position is None else str(position)


def _item(letter: Letter | ListedLetter) -> LetterItem:
    return LetterItem(
        number=letter.position, receiver=letter.receiver, sequence=letter.sequence, reason=letter.reason,
        at=instant_text(letter.at), attempts=letter.attempts, status=letter.status, type=letter.type,
        id=letter.event_id, bytes=None if letter.is_body_gone else letter.size,
    )  # fmt: skip


def _body(body: bytes | None) -> tuple[str | None, str | None]:
    """The body as a text, or in base64."""
    if body is None:
        return None, None
    try:
        return body.decode(), None
    except UnicodeDecodeError:
        return None, base64.b64encode(body).decode()
