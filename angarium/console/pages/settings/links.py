"""Links that sign a tenant's people in, made by an operator, and shown once."""

from litestar import Response, get, post
from msgspec import Struct

from angarium.api.api_state import InjectedAccess
from angarium.api.problems import problem_of
from angarium.console.admission import FORM, Form, field, needs
from angarium.console.console_state import InjectedConsole, InjectedSession
from angarium.console.paths import ConsoleRequest
from angarium.console.rendering.responses import page
from angarium.operations.failures import NotDone
from angarium.operations.tokens.portal_links import LINK_NOTE_MAX, NewPortalLink, create_portal_link
from angarium.quantities import BadQuantity, parse_age


class LinkForm(Struct, frozen=True):
    """A form for a new link, as it was filled in, and its problems by field."""

    tenant: str = ""
    manages: bool = False
    lasts: str = "1h"
    note: str = ""
    problems: dict[str, str] = {}


@get("/settings/links/new", opt=needs("operate"))
async def show_link_form(
    request: ConsoleRequest, console: InjectedConsole, session: InjectedSession
) -> Response[bytes]:
    """An empty form for a new link."""
    return page(
        request, "link_form.html", session, asked=LinkForm(), note_max=LINK_NOTE_MAX,
        console_url=console.access.settings.console_url,
    )  # fmt: skip


@post("/settings/links", status_code=200, opt=needs("operate"))
async def create_link(
    request: ConsoleRequest, console: InjectedConsole, session: InjectedSession, access: InjectedAccess
) -> Response[bytes]:
    """Make a link, which this answer alone shows; or the form again, with its problems."""
    form: Form = request.scope["state"][FORM]
    tenant, lasts, note = (field(form, name).strip() for name in ("tenant", "lasts", "note"))
    manages, problems = bool(field(form, "manage")), dict[str, str]()
    try:
        new = NewPortalLink(tenant=tenant, manage=manages, lasts_s=parse_age(lasts), note=note)
        made = await create_portal_link(access, new)
    except BadQuantity as error:
        problems["lasts_s"] = str(error)
    else:
        if not isinstance(made, NotDone):
            return page(request, "link_made.html", session, made=made)
        if made.kind != "invalid":
            raise problem_of(made)
        for each in made.problems:
            member, _, sentence = each.partition(": ")
            problems[member] = sentence
    asked = LinkForm(tenant, manages, lasts, note, problems)
    return page(
        request, "link_form.html", session, status=422, asked=asked, note_max=LINK_NOTE_MAX,
        console_url=console.access.settings.console_url,
    )  # fmt: skip
