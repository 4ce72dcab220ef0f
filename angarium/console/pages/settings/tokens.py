"""Tokens: created with a form that names each mistake, and revoked after a page that says what that ends."""

from litestar import Response, get, post
from litestar.params import FromPath
from msgspec import Struct

from angarium.api.api_state import InjectedAccess
from angarium.api.problems import hidden, result_of
from angarium.console.admission import FORM, Form, field, needs
from angarium.console.console_state import ConsoleState, InjectedConsole, InjectedSession
from angarium.console.paths import ConsoleRequest
from angarium.console.rendering.responses import page, redirect
from angarium.operations.tokens.create import NewToken, create, token_problems
from angarium.operations.tokens.listing import ListedToken, some_tokens
from angarium.operations.tokens.revoke import revoke
from angarium.quantities import BadQuantity, parse_age
from streams.buckets.api_tokens import ALL_TENANTS, Scope

SETTINGS_PATH = "/console/settings"
SCOPES: tuple[tuple[Scope, str], ...] = (
    ("publish", "publish events"),
    ("read", "see receivers and what happened"),
    ("manage", "change receivers; skip, discard and send events again"),
    ("operate", "the fleet and the tokens; for the tenant * only"),
)
"""The scopes, and what each of them allows."""


class TokenForm(Struct, frozen=True):
    """A form for a new token, as it was filled in, and its problems by field."""

    tenant: str = ""
    scopes: tuple[str, ...] = ()
    lasts: str = "90d"
    rate: str = ""
    note: str = ""
    problems: dict[str, str] = {}


@get("/settings/tokens/new", opt=needs("operate"))
async def show_token_form(request: ConsoleRequest, session: InjectedSession) -> Response[bytes]:
    """An empty form for a new token."""
    return page(request, "token_form.html", session, asked=TokenForm(), scopes=SCOPES)


@post("/settings/tokens", status_code=200, opt=needs("operate"))
async def create_token(
    request: ConsoleRequest, session: InjectedSession, access: InjectedAccess
) -> Response[bytes]:
    """Create a token, whose text this answer alone shows; or the form again, with its problems."""
    form: Form = request.scope["state"][FORM]
    asked = TokenForm(
        field(form, "tenant").strip(), tuple(form.get("scope", ())), field(form, "lasts").strip(),
        field(form, "rate").strip(), field(form, "note").strip(),
    )  # fmt: skip
    new, problems = token_of(asked)
    if problems:
        again = TokenForm(asked.tenant, asked.scopes, asked.lasts, asked.rate, asked.note, problems)
        return page(request, "token_form.html", session, status=422, asked=again, scopes=SCOPES)
    made = result_of(await create(access, new))
    return page(request, "token_made.html", session, made=made)


def token_of(asked: TokenForm) -> tuple[NewToken, dict[str, str]]:
    """The token that a form asks for, and the problems of its fields."""
    problems: dict[str, str] = {}
    lasts_s = rate = None
    try:
        lasts_s = parse_age(asked.lasts) if asked.lasts else None
    except BadQuantity as error:
        problems["lasts_s"] = f"{error}, or leave it empty for a token that does not expire"
    try:
        rate = float(asked.rate) if asked.rate else None
    except ValueError:
        problems["rate"] = f"{asked.rate!r} is not a number of events a second"
    known = tuple(name for name, _ in SCOPES if name in asked.scopes)
    new = NewToken(tenant=asked.tenant, scopes=known, lasts_s=lasts_s, rate=rate, note=asked.note)
    return new, token_problems(new) | problems


@get("/settings/tokens/{token_id:str}/revoke", opt=needs("operate"))
async def preview_revocation(
    request: ConsoleRequest, console: InjectedConsole, session: InjectedSession, token_id: FromPath[str]
) -> Response[bytes]:
    """Say which token would be revoked, and what that ends."""
    found = await _token(console, token_id)
    return page(
        request, "token_revoke.html", session, token=found, is_own=found.id == session.token_id,
        sessions=console.sessions.count_of_token(found.id),
    )  # fmt: skip


@post("/settings/tokens/{token_id:str}/revoke", status_code=200, opt=needs("operate"))
async def revoke_token(
    session: InjectedSession, access: InjectedAccess, token_id: FromPath[str]
) -> Response[bytes]:
    """Revoke the token."""
    result_of(await revoke(access, token_id))
    session.notice(f"The token {token_id} is revoked: within a second, no process accepts it.")
    return redirect(SETTINGS_PATH)


async def _token(console: ConsoleState, token_id: str) -> ListedToken:
    """A token by its id. Raises `ProblemRaised`."""
    if console.api.tokens.get(token_id) is None:
        raise hidden()
    with console.api.control_limits.admit(ALL_TENANTS):
        found = result_of(await some_tokens(console.access, [token_id]))
    if not found:
        raise hidden()
    return found[0]
