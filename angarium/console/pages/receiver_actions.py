"""Actions on a receiver: each is previewed with its numbers, then confirmed.

The form of a preview holds what it showed. If the facts have changed since in a way that matters, nothing is
done, and the preview is shown again.
"""

from typing import assert_never

from litestar import Response, get, post
from litestar.params import FromPath

from angarium.access import Access
from angarium.api.api_state import InjectedAccess
from angarium.api.problems import hidden, result_of
from angarium.console.admission import FORM, Form, field, needs
from angarium.console.console_state import InjectedConsole, InjectedSession
from angarium.console.pages.action_previews import (
    ACTION_BUTTONS,
    Action,
    ActionButton,
    discarded_max,
    is_unchanged,
    preview_of,
)
from angarium.console.paths import ConsoleRequest
from angarium.console.rendering.responses import page, redirect
from angarium.operations.control_requests.inspection import inspect_receiver
from angarium.operations.control_requests.operator_actions import (
    forget,
    pause,
    ping,
    resume,
    skip,
    verify,
)
from angarium.quantities import count_text

CHANGED = "Nothing was done: the receiver has changed. Review the new preview."
NOT_NAMED = "Nothing was done: write the name of the receiver to confirm."


@get("/receivers/{tenant:str}/{name:str}/{action:str}", opt=needs("manage"))
async def preview_action(
    request: ConsoleRequest,
    console: InjectedConsole,
    session: InjectedSession,
    tenant: FromPath[str],
    name: FromPath[str],
    action: FromPath[str],
) -> Response[bytes]:
    """Say what an action will do."""
    button = _button(action)
    with console.api.control_limits.admit(tenant):
        live = result_of(await inspect_receiver(console.access, f"{tenant}.{name}"))
    return page(
        request, "action.html", session, tenant=tenant, name=name, preview=preview_of(button, live), again=""
    )


@post("/receivers/{tenant:str}/{name:str}/{action:str}", status_code=200, opt=needs("manage"))
async def do_action(
    request: ConsoleRequest,
    console: InjectedConsole,
    session: InjectedSession,
    access: InjectedAccess,
    tenant: FromPath[str],
    name: FromPath[str],
    action: FromPath[str],
) -> Response[bytes]:
    """Do what was previewed."""
    button, receiver = _button(action), f"{tenant}.{name}"
    form: Form = request.scope["state"][FORM]
    confirmed_facts = field(form, "confirmed_facts")
    with console.api.control_limits.admit(tenant):
        now = preview_of(button, result_of(await inspect_receiver(console.access, receiver)))
        done, again = None, CHANGED
        if button.is_final and field(form, "receiver").strip() != receiver:
            again = NOT_NAMED
        elif now.is_possible and is_unchanged(now, confirmed_facts):
            done = await _perform(
                access, receiver, button.action, discarded_max(confirmed_facts, now.confirmed_facts)
            )
    if done is None:
        return page(
            request, "action.html", session, status=409, tenant=tenant, name=name, preview=now, again=again
        )
    session.notice(done)
    return redirect(f"/console/receivers/{tenant}/{name}")


async def _perform(access: Access, receiver: str, action: Action, discarded: int) -> str | None:
    """Perform the action, with so many discarded events at most: a sentence, or None if there are more.

    Raises `ProblemRaised`.
    """
    match action:
        case "pause":
            result_of(await pause(access, receiver))
            return "It is paused. Its events wait."
        case "resume":
            resumed = result_of(await resume(access, receiver))
            return f"It is resumed{resumed.text}. Its events are sent again."
        case "ping":
            pong = result_of(await ping(access, receiver))
            answer = f"answered {pong.status}" if pong.error is None else f"gave no answer: {pong.error}"
            return f"The receiver {answer}, after {pong.latency_ms:.3g} ms."
        case "verify":
            proof = result_of(await verify(access, receiver))
            why = "" if proof.verified else f": {proof.error or proof.status}"
            return f"The receiver has {'' if proof.verified else 'not '}proved itself{why}."
        case "skip":
            skipped = result_of(await skip(access, receiver))
            return f"The event {skipped.event_id}, number {skipped.sequence}, is a dead letter now."
        case "forget":
            gone = result_of(await forget(access, receiver, lambda it: it.count <= discarded))
            if gone is None:
                return None
            gone_events = count_text(gone.discarded, "event")
            return f"{gone_events} discarded. The next event gets the number {gone.next_sequence}."
        case _:
            assert_never(action)


def _button(action: str) -> ActionButton:
    if action not in ACTION_BUTTONS:
        raise hidden()
    return ACTION_BUTTONS[action]
