"""The audit of a receiver's rate: its attempts against the limit in force, as a chart and in words."""

import time
from typing import Annotated

from litestar import Response, get
from litestar.params import FromPath, QueryParameter
from msgspec import Struct

from actors.errors import BadInput
from angarium import quantities
from angarium.api.problems import ProblemRaised, result_of
from angarium.api.queries.ask_ledger import ask_ledger
from angarium.console.admission import needs
from angarium.console.console_state import ConsoleState, InjectedConsole, InjectedSession
from angarium.console.paths import ConsoleRequest
from angarium.console.rendering.audit_chart import AuditChart, audit_chart
from angarium.console.rendering.responses import page
from angarium.operations.configurations.get import get_configuration
from angarium.operations.ledger_queries.audit import AuditDocument, audit, document

AUDITED_MAX = 100_000
"""Attempts in one audit."""
SINCE_DEFAULT = "1h"

TimeText = Annotated[str, QueryParameter(max_length=64)]


class ShownAudit(Struct, frozen=True):
    """An audit and its chart; `problem`: why there is none."""

    found: AuditDocument | None = None
    chart: AuditChart | None = None
    problem: str = ""


@get("/receivers/{tenant:str}/{name:str}/audit", opt=needs("read"))
async def show_audit(
    request: ConsoleRequest,
    console: InjectedConsole,
    session: InjectedSession,
    tenant: FromPath[str],
    name: FromPath[str],
    since: TimeText = SINCE_DEFAULT,
    until: TimeText = "",
) -> Response[bytes]:
    """The audit of a period."""
    receiver = f"{tenant}.{name}"
    result_of(await get_configuration(console.access, receiver))
    try:
        shown = await _audited(console, tenant, receiver, *period_ms(since, until, time.time()))
    except BadInput as error:
        shown = ShownAudit(problem=str(error))
    except ProblemRaised as raised:
        shown = ShownAudit(problem=raised.problem.detail)
    return page(
        request, "audit.html", session, tenant=tenant, name=name, since=since, until=until, audit=shown
    )


def period_ms(since: str, until: str, now: float) -> tuple[int, int]:
    """The period that the texts name, in milliseconds; without an end it ends now. Raises BadInput."""
    begin = round(quantities.parse_time(since.strip() or SINCE_DEFAULT, now) * 1000)
    end = round((quantities.parse_time(until.strip(), now) if until.strip() else now) * 1000)
    if end <= begin:
        raise BadInput("the end must be later than the beginning")
    return begin, end


async def _audited(console: ConsoleState, tenant: str, receiver: str, since: int, until: int) -> ShownAudit:
    """The audit. Raises `ProblemRaised`."""
    with console.api.audit_limits.admit(tenant):
        found = await ask_ledger(
            console.api, tenant, lambda ledger: audit(ledger, receiver, since, until, AUDITED_MAX)
        )
    shown = document(found)
    return ShownAudit(shown, audit_chart(shown.chart))
