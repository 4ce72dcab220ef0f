"""The settings: tokens for operators, and the quotas of tenants, whose own people see theirs.

The list of tokens is the one that this process follows; only those of a page are read. Quotas are in the
settings file of each process, so the console shows those of this process, and changes none.
"""

from collections.abc import Mapping
from typing import Annotated

from litestar import Response, get
from litestar.params import QueryParameter
from msgspec import Struct

from actors.configuration.policy import Rate
from actors.tenant_settings import ALL_OTHERS, SettingsByTenant, TenantSettings
from angarium.api.admission.gate import is_past
from angarium.api.problems import result_of
from angarium.console.admission import AskedTenant, needs, tenant_seen
from angarium.console.console_state import ConsoleState, InjectedConsole, InjectedSession
from angarium.console.paths import ConsoleRequest
from angarium.console.rendering.responses import page
from angarium.operations.tokens.listing import ListedToken, some_tokens
from streams.buckets.api_tokens import ALL_TENANTS, Token

PAGE_TOKENS = 50
TENANTS_SHOWN_MAX = 200
TOKEN_ID_MAX = 64


class TokenIds(Struct, frozen=True):
    """The ids of a page's tokens, the newest first, the last one if others follow, and how many there are."""

    ids: list[str]
    last: str | None
    total: int


class TenantQuotas(Struct, frozen=True):
    """The settings of a tenant, as a row: None is no limit."""

    name: str
    weight: int
    rate: str | None
    backlog_max_bytes: int | None
    dead_letters_max_bytes: int | None
    attempts_max: int | None


@get("/settings", opt=needs("read", "operate"))
async def show_settings(
    request: ConsoleRequest,
    console: InjectedConsole,
    session: InjectedSession,
    tenant: AskedTenant = "",
    after: Annotated[str, QueryParameter(max_length=TOKEN_ID_MAX)] = "",
) -> Response[bytes]:
    """The settings that the session may see."""
    about = tenant_seen(session, tenant.strip())
    found, tokens = None, list[ListedToken]()
    if session.may("operate"):
        found = token_ids(console.api.tokens.known, about, after)
        tokens = await _tokens(console, found.ids)
    return page(
        request, "settings.html", session, tenant=about, after=after, found=found, tokens=tokens,
        quotas=quotas_shown(console.access.settings.tenants, about), is_past=is_past,
    )  # fmt: skip


async def _tokens(console: ConsoleState, ids: list[str]) -> list[ListedToken]:
    with console.api.control_limits.admit(ALL_TENANTS):
        return result_of(await some_tokens(console.access, ids))


def token_ids(known: Mapping[str, Token], tenant: str | None, after: str) -> TokenIds:
    """The newest tokens, or those that come after one in the list."""
    wanted = [name for name, each in known.items() if tenant is None or each.tenant == tenant]
    wanted.sort(key=lambda name: (known[name].created_at, name), reverse=True)
    start = wanted.index(after) + 1 if after in wanted else 0
    ids = wanted[start : start + PAGE_TOKENS]
    return TokenIds(ids, ids[-1] if len(wanted) > start + PAGE_TOKENS else None, len(wanted))


def quotas_shown(tenants: dict[str, TenantSettings], tenant: str | None) -> list[TenantQuotas]:
    """The quotas of a tenant, or of those that have settings of their own and of all others."""
    if tenant is not None:
        return [_row(tenant, SettingsByTenant(tenants).for_tenant(tenant))]
    others = SettingsByTenant(tenants).for_all_others
    named = [name for name in sorted(tenants) if name != ALL_OTHERS][:TENANTS_SHOWN_MAX]
    return [*(_row(name, tenants[name]) for name in named), _row("all others" if named else "all", others)]


def _row(name: str, settings: TenantSettings) -> TenantQuotas:
    return TenantQuotas(
        name, settings.weight, _rate(settings.rate), settings.backlog_max_bytes,
        settings.dead_letters_max_bytes, settings.attempts_max,
    )  # fmt: skip


def _rate(rate: Rate | None) -> str | None:
    return None if rate is None else f"{rate.limit:g} per {rate.per}, {rate.burst_max} at once"
