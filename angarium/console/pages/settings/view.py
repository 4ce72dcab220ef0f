"""The settings: tokens for operators, and the quotas of tenants, whose own people see theirs.

Quotas are in the settings file of each process, so the console shows them, and those of this process.
"""

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
from angarium.operations.tokens.listing import ListedToken, all_tokens
from streams.buckets.api_tokens import ALL_TENANTS

PAGE_TOKENS = 50
TENANTS_SHOWN_MAX = 200
TOKEN_ID_MAX = 64


class TokensFound(Struct, frozen=True):
    """The tokens of a page, the newest first, the id of the last one if others follow, and their number."""

    tokens: list[ListedToken]
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
    found = await _tokens(console, about, after) if session.may("operate") else None
    return page(
        request, "settings.html", session, tenant=about, after=after, found=found,
        quotas=quotas_shown(console.access.settings.tenants, about), is_past=is_past,
    )  # fmt: skip


async def _tokens(console: ConsoleState, tenant: str | None, after: str) -> TokensFound:
    with console.api.control_limits.admit(ALL_TENANTS):
        tokens = result_of(await all_tokens(console.access))
    return tokens_found(tokens, tenant, after)


def tokens_found(tokens: list[ListedToken], tenant: str | None, after: str) -> TokensFound:
    """The newest tokens, or those that come after one in the list."""
    found = [each for each in reversed(tokens) if tenant is None or each.tenant == tenant]
    start = next((place + 1 for place, each in enumerate(found) if each.id == after), 0)
    shown = found[start : start + PAGE_TOKENS]
    return TokensFound(shown, shown[-1].id if len(found) > start + PAGE_TOKENS else None, len(found))


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
