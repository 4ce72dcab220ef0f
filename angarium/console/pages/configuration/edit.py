"""The form of a receiver's configuration: shown, checked field by field, previewed, and stored.

A form holds the revision that it was made from. If the stored one is another by the time it is confirmed,
nothing is stored: the page says so, with what the form would change now.
"""

from typing import Any

from litestar import Response, get, post
from litestar.params import FromPath
from msgspec import Struct

from actors.configuration.parsing import DOCUMENT_MAX
from angarium.access import Access
from angarium.api.admission.change_rate import CHANGES_CODE
from angarium.api.api_state import InjectedAccess
from angarium.api.problems import ProblemRaised, hidden, problem_of, result_of
from angarium.console.admission import FORM, Form, field, needs
from angarium.console.console_state import ConsoleState, InjectedConsole, InjectedSession
from angarium.console.pages.configuration.fields import (
    PATHS,
    REST,
    ConfigurationForm,
    by_field,
    form_of,
    members_in,
    shown_fields,
)
from angarium.console.paths import ConsoleRequest
from angarium.console.rendering.responses import page, redirect
from angarium.console.sessions import ConsoleSession
from angarium.operations.configurations.get import get_configuration
from angarium.operations.configurations.proposal import PutResult
from angarium.operations.configurations.put import NewConfiguration, put_configuration
from angarium.operations.configurations.rotate import RotatedSecret
from angarium.operations.control_requests.inspection import inspect_receiver
from angarium.operations.failures import NotDone
from angarium.quantities import count_text

PATH = "/receivers/{tenant:str}/{name:str}/configuration"
FORM_OF_CONFIGURATION_MAX = 4 * DOCUMENT_MAX
"""Bytes of a form: three for a byte of the configuration that is escaped, and some for the names."""
OVERTAKEN = (
    "Nothing was stored: another user has changed the configuration since this form was made. "
    "Review what your form would change now, or start again from the configuration as it is."
)
NOT_A_FORM = "the form has no revision; load its page again"


class ReceiverForm(Struct, frozen=True):
    """A receiver whose configuration a form is about."""

    tenant: str
    name: str
    form: ConfigurationForm

    @property
    def receiver(self) -> str:
        """The id of the receiver."""
        return f"{self.tenant}.{self.name}"


@get(PATH, opt=needs("manage"))
async def show_configuration_form(
    request: ConsoleRequest,
    console: InjectedConsole,
    session: InjectedSession,
    tenant: FromPath[str],
    name: FromPath[str],
) -> Response[bytes]:
    """The form with the configuration as it is stored; problems of that are shown, too."""
    found = result_of(await get_configuration(console.access, f"{tenant}.{name}"))
    asked = ReceiverForm(tenant, name, form_of(found.members, found.revision))
    return _form_page(request, session, asked, found.problems)


@post(PATH, status_code=200, opt=needs("manage", form_bytes_max=FORM_OF_CONFIGURATION_MAX))
async def take_configuration_form(
    request: ConsoleRequest,
    console: InjectedConsole,
    session: InjectedSession,
    access: InjectedAccess,
    tenant: FromPath[str],
    name: FromPath[str],
) -> Response[bytes]:
    """Check the form, and preview it, store it, or show it again."""
    form: Form = request.scope["state"][FORM]
    asked = ReceiverForm(tenant, name, _filled_in(form))
    members, problems = members_in(asked.form)
    if problems or field(form, "do") == "edit":
        return _form_page(request, session, asked, problems)
    stores = field(form, "do") == "store"
    outcome = await _put(access, asked, members, dry_run=not stores)
    overtaken = isinstance(outcome, NotDone) and outcome.kind == "conflict"
    again = OVERTAKEN if overtaken else ""
    if overtaken:
        now = result_of(await get_configuration(access, asked.receiver))
        asked = ReceiverForm(tenant, name, ConfigurationForm(asked.form.texts, now.revision))
        outcome = await _put(access, asked, members, dry_run=True)
    if isinstance(outcome, NotDone):
        if outcome.kind != "invalid":
            raise _problem(console, asked.receiver, outcome)
        return _form_page(request, session, asked, [*(outcome.problems or (outcome.text,))], again)
    if overtaken or not stores:
        return await _preview(request, console, session, asked, outcome, again)
    changes = count_text(len(outcome.changes), "change")
    if outcome.secret is not None:
        made = RotatedSecret(
            receiver=outcome.receiver, revision=outcome.revision, secret=outcome.secret,
            secrets=outcome.secrets, public_keys=outcome.public_keys, until=None,
        )  # fmt: skip
        return page(request, "new_secret.html", session, tenant=tenant, name=name, done=made)
    session.notice(f"Stored as revision {outcome.revision}: {changes}.")
    return redirect(f"/console/receivers/{tenant}/{name}")


async def _put(
    access: Access, asked: ReceiverForm, members: dict[str, Any], *, dry_run: bool
) -> PutResult | NotDone:
    new = NewConfiguration(members=members, replace=True, revision=asked.form.revision)
    return await put_configuration(access, asked.receiver, new, dry_run=dry_run)


def _filled_in(form: Form) -> ConfigurationForm:
    """The form as a browser sent it. Raises `ProblemRaised`."""
    revision = field(form, "revision")
    if not (revision.isascii() and revision.isdigit() and len(revision) < 19):
        raise ProblemRaised(422, "invalid", NOT_A_FORM)
    texts = {path: field(form, path).replace("\r\n", "\n") for path in (*PATHS, REST)}
    return ConfigurationForm(texts, int(revision))


def _problem(console: ConsoleState, receiver: str, failure: NotDone) -> ProblemRaised:
    """The answer to a form that could not be stored for another reason than its content."""
    if failure.code == CHANGES_CODE:
        return console.api.changes.problem(receiver, failure.text)
    return hidden() if failure.kind == "not_found" else problem_of(failure)


async def _preview(
    request: ConsoleRequest,
    console: ConsoleState,
    session: ConsoleSession,
    asked: ReceiverForm,
    result: PutResult,
    again: str,
) -> Response[bytes]:
    """The changes that the form would make, and the number of events that would go to another URL."""
    waiting = None
    if any(each.member == "url" for each in result.changes):
        with console.api.control_limits.admit(asked.tenant):
            live = await inspect_receiver(console.access, asked.receiver)
        waiting = None if isinstance(live, NotDone) else live["backlog"]
    return page(
        request, "configuration_preview.html", session, status=409 if again else 200, asked=asked,
        changes=result.changes, notes=[each.text for each in result.notes], again=again,
        waiting=None if waiting is None else count_text(waiting, "event"),
    )  # fmt: skip


def _form_page(
    request: ConsoleRequest,
    session: ConsoleSession,
    asked: ReceiverForm,
    problems: list[str],
    again: str = "",
) -> Response[bytes]:
    return page(
        request, "configuration_form.html", session, status=422 if problems else 200, asked=asked,
        fields=list(shown_fields(asked.form)), rest=asked.form.texts[REST], problems=by_field(problems),
        again=again,
    )  # fmt: skip
