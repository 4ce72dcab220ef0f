"""A new signing secret for a receiver: shown once, while the current ones sign as well until they end."""

from litestar import Response, get, post
from litestar.params import FromPath
from msgspec import Struct

from angarium import quantities
from angarium.api.api_state import InjectedAccess
from angarium.api.problems import Fault, invalid, result_of
from angarium.console.admission import FORM, Form, field, needs
from angarium.console.console_state import ConsoleState, InjectedConsole, InjectedSession
from angarium.console.paths import ConsoleRequest
from angarium.console.rendering.responses import page
from angarium.operations.configurations.get import get_configuration
from angarium.operations.configurations.rotate import rotate_secret
from angarium.operations.failures import NotDone

PATH = "/receivers/{tenant:str}/{name:str}/rotate-secret"
OVERLAPS = {"1h": "for one hour", "24h": "for one day", "7d": "for 7 days", "30d": "for 30 days"}
"""The times for which the current secrets may sign as well, and their words."""
OVERLAP_DEFAULT = "24h"
NO_OVERLAP = "0s"
CHANGED = "Nothing was done: the configuration has changed. Review the page as it is now."
NOT_NAMED = "Nothing was done: write the name of the receiver to end its current secrets at once."


class CurrentSecrets(Struct, frozen=True):
    """The secrets that sign now: how many, when the old ones end, and the revision that has them."""

    revision: int
    current: int
    old_ends: list[str]


@get(PATH, opt=needs("manage"))
async def preview_rotation(
    request: ConsoleRequest,
    console: InjectedConsole,
    session: InjectedSession,
    tenant: FromPath[str],
    name: FromPath[str],
) -> Response[bytes]:
    """Say what signs now, and what a new secret will change."""
    found = await _current(console, f"{tenant}.{name}")
    return page(
        request, "rotate_secret.html", session, tenant=tenant, name=name, found=found, again="",
        overlaps=OVERLAPS, chosen=OVERLAP_DEFAULT,
    )  # fmt: skip


@post(PATH, status_code=200, opt=needs("manage"))
async def do_rotation(
    request: ConsoleRequest,
    console: InjectedConsole,
    session: InjectedSession,
    access: InjectedAccess,
    tenant: FromPath[str],
    name: FromPath[str],
) -> Response[bytes]:
    """Make the new secret; its page is the only one that shows it."""
    form: Form = request.scope["state"][FORM]
    receiver, overlap = f"{tenant}.{name}", field(form, "overlap")
    if overlap not in OVERLAPS and overlap != NO_OVERLAP:
        raise invalid(Fault(detail="choose how long the current secrets sign as well"))
    now = await _current(console, receiver)
    again = CHANGED if field(form, "confirmed_facts") != str(now.revision) else ""
    if overlap == NO_OVERLAP and field(form, "receiver").strip() != receiver:
        again = again or NOT_NAMED
    if not again:
        done = await rotate_secret(access, receiver, quantities.parse_age(overlap), revision=now.revision)
        if not (isinstance(done, NotDone) and done.kind == "conflict"):
            return page(request, "new_secret.html", session, tenant=tenant, name=name, done=result_of(done))
        now, again = await _current(console, receiver), CHANGED
    return page(
        request, "rotate_secret.html", session, status=409, tenant=tenant, name=name, found=now, again=again,
        overlaps=OVERLAPS, chosen=overlap,
    )  # fmt: skip


async def _current(console: ConsoleState, receiver: str) -> CurrentSecrets:
    found = result_of(await get_configuration(console.access, receiver))
    secrets, old = found.members.get("secrets"), found.members.get("old_secrets")
    ends = [str(each.get("until")) for each in old if isinstance(each, dict)] if isinstance(old, list) else []
    return CurrentSecrets(found.revision, len(secrets) if isinstance(secrets, list) else 0, ends)
