"""Answers from the ledger: attempts, journeys of events, histories, audits, and the worst receivers."""

from datetime import UTC, datetime
from typing import Annotated

import msgspec
from litestar import get
from litestar.params import FromPath, PathParameter, QueryParameter

from angarium.api.admission.gate import needs
from angarium.api.api_state import InjectedApi
from angarium.api.openapi.ledger_queries import (
    GET_AUDIT,
    GET_EVENT,
    GET_HISTORY,
    GET_TOP,
    LIST_ATTEMPTS,
    LIST_MINUTES,
    AttemptItem,
    AttemptPage,
    FailingItem,
    HistoryPage,
    JourneyPage,
    LateItem,
    MinutePage,
    WorstReceivers,
)
from angarium.api.problems import Fault, invalid
from angarium.api.queries.ask_ledger import ask_ledger, period_ms
from angarium.api.queries.cursors import MinuteCursor, PageSize, TimeCursor, cursor_of, start_of
from angarium.api.queries.journeys import AskedEvent, JourneyCursor, journey_of_event
from angarium.api.queries.times import Moment, moment, seconds
from angarium.ledger.ledger_answers import AttemptFilter
from angarium.operations.ledger_queries.attempts import attempts_page
from angarium.operations.ledger_queries.audit import AuditDocument, audit, document
from angarium.operations.ledger_queries.history import history_page
from angarium.operations.ledger_queries.minutes import minutes_page
from angarium.operations.ledger_queries.worst_receivers import find_worst
from streams.reading.messages import type_problem

PATH = "/v1/tenants/{tenant:str}/receivers/{name:str}"
ASKED_TIME_S = 3600.0
"""Length of a period without a beginning."""
AUDITED_MAX = 100_000
"""Attempts in one audit."""
WITHIN_MAX_S = 30 * 86_400.0

EventId = Annotated[str, PathParameter(description="The event's id.")]
Status = Annotated[
    str | None,
    QueryParameter(pattern=r"^[1-5]([0-9]{2}|xx)$", description="A status, such as 503, or a class, 5xx."),
]
Type = Annotated[str | None, QueryParameter(min_length=1, max_length=200, description="The event's type.")]


@get(f"{PATH}/attempts", opt=needs("read"), **LIST_ATTEMPTS)
async def list_attempts(
    tenant: FromPath[str],
    name: FromPath[str],
    api: InjectedApi,
    failed: Annotated[bool, QueryParameter(description="Only failed attempts.")] = False,
    status: Status = None,
    type: Type = None,
    since: Moment = None,
    until: Moment = None,
    limit: PageSize = 50,
    cursor: TimeCursor = None,
) -> AttemptPage:
    """List the attempts to a receiver, newest first."""
    if type is not None and (problem := type_problem(type)):
        raise invalid(Fault(parameter="type", detail=problem))
    begin, end = period_ms(moment("since", since), moment("until", until))
    wanted = AttemptFilter(
        failed=failed, status=_statuses(status), type=type, since=begin, until=end, limit=limit
    )
    receiver, start = f"{tenant}.{name}", start_of(cursor)
    found = await ask_ledger(api, tenant, lambda ledger: attempts_page(ledger, receiver, wanted, start))
    items = msgspec.convert(found.attempts, list[AttemptItem])
    return AttemptPage(attempts=items, next_cursor=cursor_of(found.next), ledger=found.ledger)


@get(f"{PATH}/history", opt=needs("read"), **GET_HISTORY)
async def get_history(
    tenant: FromPath[str],
    name: FromPath[str],
    api: InjectedApi,
    since: Moment = None,
    until: Moment = None,
    limit: PageSize = 50,
    cursor: TimeCursor = None,
) -> HistoryPage:
    """Show a receiver's history, oldest first."""
    begin, end = period_ms(moment("since", since), moment("until", until))
    receiver, start = f"{tenant}.{name}", start_of(cursor)
    found = await ask_ledger(
        api, tenant, lambda ledger: history_page(ledger, receiver, begin, end, start, limit)
    )
    return HistoryPage(
        receiver=found.receiver, entries=found.entries, now=found.now, next_cursor=cursor_of(found.next),
        ledger=found.ledger,
    )  # fmt: skip


@get(f"{PATH}/audit", opt=needs("read"), **GET_AUDIT)
async def get_audit(
    tenant: FromPath[str], name: FromPath[str], api: InjectedApi, since: Moment = None, until: Moment = None
) -> AuditDocument:
    """Audit a receiver's rate; without `since`, in the hour before `until`, or in the last hour."""
    within, receiver = _last_hour(since, until), f"{tenant}.{name}"
    with api.audit_limits.admit(tenant):
        found = await ask_ledger(api, tenant, lambda ledger: audit(ledger, receiver, *within, AUDITED_MAX))
    return document(found)


@get(f"{PATH}/minutes", opt=needs("read"), **LIST_MINUTES)
async def list_minutes(
    tenant: FromPath[str],
    name: FromPath[str],
    api: InjectedApi,
    since: Moment = None,
    until: Moment = None,
    limit: PageSize = 60,
    cursor: MinuteCursor = None,
) -> MinutePage:
    """List throughput and latency by minute; without `since`, of the hour up to `until` or now."""
    begin, end = _last_hour(since, until)
    receiver, start = f"{tenant}.{name}", max(begin, cursor or 0)
    found = await ask_ledger(api, tenant, lambda ledger: minutes_page(ledger, receiver, start, end, limit))
    following = None if found.next is None else str(found.next)
    return MinutePage(receiver=receiver, minutes=found.minutes, next_cursor=following, ledger=found.ledger)


@get("/v1/tenants/{tenant:str}/events/{event:str}", opt=needs("read"), **GET_EVENT)
async def get_event(
    tenant: FromPath[str],
    event: EventId,
    api: InjectedApi,
    limit: PageSize = 50,
    cursor: JourneyCursor = None,
) -> JourneyPage:
    """Show an event's deliveries to the tenant's receivers, and where it still waits."""
    return await journey_of_event(api, AskedEvent(tenant=tenant, event=event, limit=limit, cursor=cursor))


@get("/v1/tenants/{tenant:str}/top", opt=needs("read"), **GET_TOP)
async def get_top(
    tenant: FromPath[str],
    api: InjectedApi,
    within_s: Annotated[float, QueryParameter(ge=60, le=WITHIN_MAX_S)] = 3600.0,
    limit: PageSize = 10,
) -> WorstReceivers:
    """List the worst receivers of a tenant."""
    found = await ask_ledger(api, tenant, lambda ledger: find_worst(ledger, within_s, limit, tenant))
    return WorstReceivers(
        failing=msgspec.convert(found.failing, list[FailingItem]),
        late=msgspec.convert(found.late, list[LateItem]),
        within_s=found.within_s, ledger=found.ledger,
    )  # fmt: skip


def _last_hour(since: str | None, until: str | None) -> tuple[int, int]:
    """The period of a query, in milliseconds; without `since` an hour, without `until` up to now."""
    end = moment("until", until) or datetime.now(UTC)
    begin = moment("since", since) or datetime.fromtimestamp(max(0.0, seconds(end) - ASKED_TIME_S), UTC)
    return period_ms(begin, end)


def _statuses(text: str | None) -> tuple[int, int] | None:
    """The first and the last status that a filter names."""
    if text is None:
        return None
    if text.endswith("xx"):
        return int(text[0]) * 100, int(text[0]) * 100 + 99
    return int(text), int(text)
