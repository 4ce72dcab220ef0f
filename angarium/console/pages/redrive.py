"""Sending dead letters again, in bulk: chosen ones at once, a whole selection as a job with its progress."""

import re

from litestar import Response, get, post
from litestar.params import FromPath
from msgspec import Struct

from actors.ids import tenant_of
from angarium.api.api_state import InjectedAccess
from angarium.api.problems import Fault, hidden, invalid, result_of
from angarium.console.admission import FORM, Form, field, needs, sees
from angarium.console.console_state import ConsoleState, InjectedConsole, InjectedSession
from angarium.console.pages.action_previews import with_some_more
from angarium.console.pages.dead_letters import selection
from angarium.console.paths import ConsoleRequest
from angarium.console.rendering.responses import page, redirect
from angarium.console.sessions import ConsoleSession
from angarium.operations.dead_letters.find import owned_letters
from angarium.operations.dead_letters.listing import oldest_after
from angarium.operations.dead_letters.redrive import redrive
from angarium.operations.failures import NotDone
from angarium.operations.jobs.begin import begin_redrive
from angarium.operations.jobs.plans import JobDocument, kind_and_owner
from angarium.operations.jobs.show import show
from angarium.operations.jobs.stop import stop
from angarium.operations.jobs.waiting import NO_JOB_RUNS
from angarium.quantities import count_text

STARTS = "it starts within seconds"
"""The state of a job that no process runs yet: this process takes it up."""
CHANGED = "Nothing was done: the selection has changed. Review the new preview."
COUNTED_MAX = 1000
"""Letters of a selection that a preview counts."""
CHOSEN_MAX = 200
REDRIVE_PATIENCE_S = 20.0
"""Time in which a redrive waits for those of others."""
JOB_REFRESH_S = 1
_COUNT = re.compile(r"([0-9]{1,15})(\+?)\Z")


class Chosen(Struct, frozen=True):
    """The letters that a form means: chosen ones, or a selection, of which so many were counted."""

    numbers: tuple[int, ...]
    receiver: str
    reason: str
    count: int
    more: bool = False

    @property
    def confirmed_facts(self) -> str:
        """The number, as the form of its preview sends it back."""
        return f"{self.count}{'+' if self.more else ''}"

    def is_unchanged(self, confirmed_facts: str) -> bool:
        """True if a preview with that number is close enough to what is there now."""
        if self.numbers:
            return confirmed_facts == self.confirmed_facts
        if not (found := _COUNT.match(confirmed_facts)):
            return False
        return bool(found[2]) or (not self.more and self.count <= with_some_more(int(found[1])))

    @property
    def words(self) -> str:
        """Their number for people."""
        letters = count_text(self.count, "dead letter")
        return f"more than {letters}" if self.more else letters


@post("/dead-letters/{tenant:str}/redrive", status_code=200, opt=needs("manage"))
async def preview_redrive(
    request: ConsoleRequest, console: InjectedConsole, session: InjectedSession, tenant: FromPath[str]
) -> Response[bytes]:
    """Say which letters would be sent again."""
    chosen = await _chosen(console, tenant, request.scope["state"][FORM])
    return page(request, "redrive.html", session, tenant=tenant, chosen=chosen, again="")


@post("/dead-letters/{tenant:str}/redrive-now", status_code=200, opt=needs("manage"))
async def do_redrive(
    request: ConsoleRequest,
    console: InjectedConsole,
    session: InjectedSession,
    access: InjectedAccess,
    tenant: FromPath[str],
) -> Response[bytes]:
    """Send the letters again."""
    form: Form = request.scope["state"][FORM]
    chosen = await _chosen(console, tenant, form)
    if not chosen.is_unchanged(field(form, "confirmed_facts")):
        return page(request, "redrive.html", session, status=409, tenant=tenant, chosen=chosen, again=CHANGED)
    if not chosen.numbers:
        wanted = selection(tenant, chosen.receiver, chosen.reason)
        begun = result_of(await begin_redrive(access, tenant, wanted))
        if not begun.mine:
            session.notice("Another redrive of this tenant is unfinished: this is its progress.")
        console.api.jobs.wake()
        return redirect(f"/console/jobs/{begun.job.id}")
    with console.api.control_limits.admit(tenant):
        async with console.api.redrive_turns.turn(tenant), console.api.jobs.redrives_here:
            done = result_of(await redrive(access, chosen.numbers, patience_s=REDRIVE_PATIENCE_S)).done
    left = "".join(f" {count} left out: {why}." for why, count in done.left_out.items())
    stopped = f" It was stopped: {done.stopped}." if done.stopped else ""
    session.notice(f"{done.redriven} of {chosen.words} sent again.{left}{stopped}")
    return redirect(f"/console/dead-letters?tenant={tenant}")


@get("/jobs/{job:str}", opt=needs("read"))
async def show_job(
    request: ConsoleRequest, console: InjectedConsole, session: InjectedSession, job: FromPath[str]
) -> Response[bytes]:
    """The progress of a job."""
    _must_see(session, job)
    document = _found(await show(console.access, job, console.api.jobs.unfinished()))
    return page(
        request, "job.html", session, job=document,
        why=STARTS if document.why == NO_JOB_RUNS else document.why,
        refresh_s=0 if document.ended_at else JOB_REFRESH_S,
    )  # fmt: skip


@post("/jobs/{job:str}/stop", status_code=200, opt=needs("manage"))
async def stop_job(
    console: InjectedConsole, session: InjectedSession, access: InjectedAccess, job: FromPath[str]
) -> Response[bytes]:
    """Stop a job; what it has sent stays sent."""
    _must_see(session, job)
    stopped = _found(await stop(access, job))
    console.api.jobs.wake()
    session.notice(f"The {stopped.kind} is asked to stop. What it has sent stays sent.")
    return redirect(f"/console/jobs/{job}")


def _must_see(session: ConsoleSession, job: str) -> None:
    """Raises `ProblemRaised` if the job is another tenant's."""
    found = kind_and_owner(job)
    if found is None or not sees(session, tenant_of(found[1])):
        raise hidden()


def _found(outcome: JobDocument | NotDone) -> JobDocument:
    """The job; a missing one gets the same answer as a hidden one. Raises `ProblemRaised`."""
    if isinstance(outcome, NotDone) and outcome.kind == "not_found":
        raise hidden()
    return result_of(outcome)


async def _chosen(console: ConsoleState, tenant: str, form: Form) -> Chosen:
    """The letters that a form means; none is another tenant's. Raises `ProblemRaised`."""
    receiver, reason = field(form, "receiver").strip(), field(form, "reason")
    with console.api.letter_limits.admit(tenant):
        if field(form, "which") == "chosen":
            given = form.get("number", [])
            numbers = [int(each) for each in given if each.isascii() and each.isdigit() and len(each) < 19]
            if not numbers or len(numbers) != len(given) or len(numbers) > CHOSEN_MAX:
                raise invalid(Fault(detail=f"choose 1 to {CHOSEN_MAX} dead letters"))
            found = result_of(await owned_letters(console.access, numbers, tenant))
            if not found:
                raise invalid(Fault(detail="these dead letters are gone"))
            return Chosen(found, receiver, reason, len(found))
        wanted = selection(tenant, receiver, reason)
        page_found = result_of(await oldest_after(console.access, wanted, COUNTED_MAX, 0))
    if not page_found.positions:
        raise invalid(Fault(detail="no dead letter is selected"))
    return Chosen((), receiver, reason, len(page_found.positions), more=page_found.next is not None)
