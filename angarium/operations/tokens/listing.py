"""Lists tokens, without their secrets."""

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from angarium.access import Access
from angarium.operations.failures import operation
from streams.buckets.api_tokens import Scope, Token, TokenStore


class ListedToken(Struct, frozen=True, kw_only=True):
    """A token as it is shown. `used_at` is updated rarely: it may be ten minutes old.

    `created_by`: None if it is not known.
    """

    id: str
    tenant: str
    scopes: tuple[Scope, ...]
    created_at: datetime
    expires_at: datetime | None
    used_at: datetime | None
    rate: float | None
    note: str
    created_by: str | None


@operation
async def all_tokens(access: Access) -> list[ListedToken]:
    """All tokens, the oldest first."""
    tokens = TokenStore(access.js, access.names)
    uses = await tokens.last_uses()
    found = [_listed(name, token, uses.get(name)) for name, token in (await tokens.all()).items()]
    return sorted(found, key=lambda each: (each.created_at, each.id))


@operation
async def some_tokens(access: Access, tokens: Sequence[str]) -> list[ListedToken]:
    """The tokens with these ids that exist, in that order."""
    found = await TokenStore(access.js, access.names).some(tokens)
    return [_listed(name, *each) for name, each in found.items()]


def _listed(name: str, token: Token, used_at: datetime | None) -> ListedToken:
    return ListedToken(
        id=name,
        tenant=token.tenant,
        scopes=token.scopes,
        created_at=token.created_at,
        expires_at=token.expires_at,
        used_at=used_at,
        rate=token.rate,
        note=token.note,
        created_by=token.created_by or None,
    )
