"""Makes links that sign the people of one tenant in to the console, without a token of their own.

A link holds a token in its fragment, the part after `#`. Browsers send that to no server, so it is in no log
and in no `Referer`, and a program that only opens the link neither signs in nor uses it up. The token
expires soon, and ends its sessions then, or when it is revoked.
"""

from msgspec import Struct

from actors.ids import is_tenant
from angarium.access import Access
from angarium.operations.failures import OperationError, operation
from angarium.operations.tokens.create import NOTE_MAX, NewToken, created_token
from angarium.quantities import CONSOLE_PATH
from streams.buckets.api_tokens import Scope, Token

LINK_LASTS_S = 3600.0
LINK_LASTS_MIN_S, LINK_LASTS_MAX_S = 60.0, 86_400.0
PURPOSE = "portal link"
"""The note by which a list of tokens tells those of links."""
LINK_NOTE_MAX = NOTE_MAX - len(f"{PURPOSE}: ")


class NewPortalLink(Struct, frozen=True, kw_only=True):
    """A link to be made; with `manage`, who opens it may also change receivers and send events again."""

    tenant: str
    manage: bool = False
    lasts_s: float = LINK_LASTS_S
    note: str = ""


class PortalLink(Struct, frozen=True):
    """A link, and the id of its token. Its repr does not show the link, which signs in who has it."""

    id: str
    url: str
    token: Token

    def __repr__(self) -> str:
        return f"PortalLink({self.id!r}, …)"


@operation
async def create_portal_link(access: Access, new: NewPortalLink) -> PortalLink:
    """Make a link. Fails as invalid, and as refused if the address of the console is not set.

    The address is a setting, and never that of a request: who sends one could then have the link lead people,
    and with them the token, to another host.
    """
    if not is_tenant(new.tenant):
        raise _invalid("tenant", f"{new.tenant!r} is no tenant: a letter, then up to 63 of A-Z a-z 0-9 _ -")
    if (console := access.settings.console_url) is None:
        raise OperationError("refused", "the address of the console, the setting console_url, is not set")
    if not LINK_LASTS_MIN_S <= new.lasts_s <= LINK_LASTS_MAX_S:
        raise _invalid("lasts_s", "a link can be valid for 1 minute to 24 hours")
    if len(new.note) > LINK_NOTE_MAX:
        raise _invalid("note", f"the note of a link must have at most {LINK_NOTE_MAX} characters")
    scopes: tuple[Scope, ...] = ("read", "manage") if new.manage else ("read",)
    note = f"{PURPOSE}: {new.note}" if new.note else PURPOSE
    made = await created_token(
        access, NewToken(tenant=new.tenant, scopes=scopes, lasts_s=new.lasts_s, note=note)
    )
    base = console.rstrip("/").removesuffix(CONSOLE_PATH)
    return PortalLink(made.id, f"{base}{CONSOLE_PATH}/portal/{new.tenant}#{made.text}", made.token)


def _invalid(member: str, sentence: str) -> OperationError:
    return OperationError("invalid", sentence, problems=(f"{member}: {sentence}",))
