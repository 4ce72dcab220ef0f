"""One receiver: its phase in words, what limits it, what waits, its attempts and its configuration."""

import asyncio
import json
import time
from typing import Annotated, Any

from litestar import Response, get
from litestar.params import FromPath, QueryParameter
from msgspec import Struct

from actors.errors import BadInput
from angarium.api.problems import ProblemRaised, hidden, result_of
from angarium.api.queries.ask_ledger import ask_ledger
from angarium.api.queries.cursors import TimeCursor, cursor_of, start_of
from angarium.console.admission import needs
from angarium.console.console_state import ConsoleState, InjectedConsole, InjectedSession
from angarium.console.pages.action_previews import available_actions
from angarium.console.pages.details.attempt_selection import ERROR_CHARS_MAX, AttemptSelection
from angarium.console.paths import ConsoleRequest
from angarium.console.rendering.minute_chart import MinuteChart, minute_chart
from angarium.console.rendering.responses import page
from angarium.ledger.ledger_answers import AttemptFilter
from angarium.operations.configurations.get import get_configuration
from angarium.operations.control_requests.ask import UNKNOWN_CODE
from angarium.operations.control_requests.inspection import StateDocument, inspect_receiver
from angarium.operations.failures import NotDone
from angarium.operations.ledger_queries.attempts import FoundAttempts
from angarium.operations.ledger_queries.receiver_records import receiver_records
from angarium.operations.receiver_list.health import ReceiverHealth
from angarium.operations.receiver_list.listing import get_health, url_without_query

PAGE_ATTEMPTS = 25
CHART_MINUTES = 60
PAGE_REFRESH_S = 3


class Records(Struct, frozen=True):
    """The ledger's part of a page; `problem`: why it has nothing to show.

    `wrong`: why the selection of attempts cannot be understood.
    """

    attempts: FoundAttempts | None = None
    chart: MinuteChart | None = None
    problem: str = ""
    wrong: str = ""


@get("/receivers/{tenant:str}/{name:str}", opt=needs("read"))
async def show_receiver(
    request: ConsoleRequest,
    console: InjectedConsole,
    session: InjectedSession,
    tenant: FromPath[str],
    name: FromPath[str],
    failed: Annotated[bool, QueryParameter()] = False,
    status: Annotated[str, QueryParameter(max_length=20)] = "",
    error: Annotated[str, QueryParameter(max_length=ERROR_CHARS_MAX)] = "",
    since: Annotated[str, QueryParameter(max_length=64)] = "",
    cursor: TimeCursor = None,
) -> Response[bytes]:
    """A receiver."""
    receiver = f"{tenant}.{name}"
    with console.api.control_limits.admit(tenant):
        selection = AttemptSelection(failed, status.strip(), error.strip(), since.strip())
        found, state, health, records = await asyncio.gather(
            get_configuration(console.access, receiver),
            inspect_receiver(console.access, receiver),
            _health(console, receiver),
            _records(console, tenant, receiver, selection, cursor),
        )
    configured = result_of(found)
    live, problem = _live(state)
    following = cursor_of(records.attempts.next) if records.attempts else None
    return page(
        request, "receiver.html", session, tenant=tenant, name=name, receiver=receiver, live_state=live,
        live_problem=problem, health=health, configured=configured, text=_as_text(configured.members),
        records=records, selection=selection, cursor=cursor, following=following,
        actions=available_actions(session, live),
        live=f"/console/live/{tenant}?receiver={name}", refresh_s=PAGE_REFRESH_S,
    )  # fmt: skip


def _live(found: StateDocument | NotDone) -> tuple[StateDocument | None, str]:
    """The live state, or why no node says it. Raises `ProblemRaised` if the receiver is gone."""
    if not isinstance(found, NotDone):
        return found, ""
    if found.code == UNKNOWN_CODE:
        raise hidden()
    return None, found.text


async def _health(console: ConsoleState, receiver: str) -> ReceiverHealth | None:
    return result_of(await get_health(console.access, [receiver], console.api.recent_counts)).get(receiver)


async def _records(
    console: ConsoleState, tenant: str, receiver: str, selection: AttemptSelection, cursor: str | None
) -> Records:
    now, wrong = time.time(), ""
    end_ms = round(now * 1000) + 1
    begin_ms = end_ms // 60_000 * 60_000 - (CHART_MINUTES - 1) * 60_000
    try:
        wanted = selection.as_filter(PAGE_ATTEMPTS, now)
    except BadInput as error:
        wanted, wrong = AttemptFilter(limit=PAGE_ATTEMPTS), str(error)
    try:
        found = await ask_ledger(
            console.api,
            tenant,
            lambda it: receiver_records(it, receiver, wanted, start_of(cursor), begin_ms, end_ms),
        )
    except ProblemRaised as raised:
        return Records(problem=raised.problem.detail)
    return Records(found.attempts, minute_chart(found.minutes, begin_ms, CHART_MINUTES), wrong=wrong)


def _as_text(members: dict[str, Any]) -> str:
    """The configuration, with the URL as lists show it: its query may hold a key."""
    shown = members | {"url": url_without_query(members["url"])} if "url" in members else members
    return json.dumps(shown, indent=2, ensure_ascii=False)
