"""Creates a token."""

import re
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from actors.errors import InvalidName
from actors.ids import check_tenant
from angarium.access import Access
from angarium.operations.failures import OperationError, operation
from angarium.operations.tokens.secret import Secret, new_secret
from streams.buckets.api_tokens import ALL_TENANTS, Scope, Token, TokenStore
from streams.nats import answers
from streams.nats.errors import ApiError, NotPermitted
from streams.nats.wire_names import STREAM_NOT_FOUND

RATE_MAX = 1_000_000.0
NOTE_MAX = 200
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class NewToken(Struct, frozen=True, kw_only=True):
    """A token to be created; `tenant` is `*` for all tenants, `lasts_s` is its validity."""

    tenant: str
    scopes: tuple[Scope, ...]
    lasts_s: float | None = None
    rate: float | None = None
    note: str = ""


class CreatedToken(Struct, frozen=True):
    """A stored token, and its text, which cannot be found out later."""

    id: str
    text: str
    token: Token

    def __repr__(self) -> str:
        return f"CreatedToken({self.id!r}, …)"


@operation
async def create(access: Access, new: NewToken) -> CreatedToken:
    """Create and store a token. Fails as invalid, with a problem for each wrong member."""
    return await created_token(access, new)


async def created_token(access: Access, new: NewToken) -> CreatedToken:
    """Create and store a token. Raises `OperationError`, NotPermitted and `ApiError`."""
    if problems := token_problems(new):
        text = "; ".join(problems.values())
        raise OperationError(
            "invalid", text, problems=tuple(f"{name}: {problems[name]}" for name in problems)
        )
    secret, now = new_secret(), datetime.now(UTC)
    token = Token(
        tenant=new.tenant,
        scopes=tuple(dict.fromkeys(new.scopes)),
        hash=secret.hash,
        created_at=now,
        expires_at=None if new.lasts_s is None else now + timedelta(seconds=new.lasts_s),
        rate=new.rate,
        note=new.note,
        created_by=access.by,
    )
    return await _stored(access, secret, token)


def token_problems(new: NewToken) -> dict[str, str]:
    """The problems of a new token by its members."""
    problems: dict[str, str] = {}
    if new.tenant != ALL_TENANTS:
        try:
            check_tenant(new.tenant)
        except InvalidName as error:
            problems["tenant"] = str(error)
    if not new.scopes:
        problems["scopes"] = "a token needs a scope: publish, read, manage or operate"
    if "operate" in new.scopes and new.tenant != ALL_TENANTS:
        problems["scopes"] = "the scope operate is for the whole fleet: give it to the tenant *"
    if new.rate is not None and not 0 < new.rate <= RATE_MAX:
        problems["rate"] = f"a token's rate must be above 0 and at most {RATE_MAX:g} events a second"
    if new.lasts_s is not None and not 0 < new.lasts_s < timedelta.max.total_seconds() / 1e4:
        problems["lasts_s"] = "a token's lifetime must be above 0, and a few centuries at most"
    if len(new.note) > NOTE_MAX or _CONTROL.search(new.note):
        problems["note"] = f"a note must be one line of at most {NOTE_MAX} characters"
    return problems


async def _stored(access: Access, made: Secret, token: Token) -> CreatedToken:
    match await TokenStore(access.js, access.names).create(made.id, token):
        case answers.Stored():
            return CreatedToken(made.id, made.text, token)
        case answers.Refused(code, text):
            raise ApiError(code, text)
        case answers.Forbidden(why):
            raise NotPermitted(why, final=True)
        case answers.Unanswered(why):
            await _need_bucket(access)
            raise OperationError("unanswered", f"NATS did not confirm the token ({why}); create another one")


async def _need_bucket(access: Access) -> None:
    """Fail with a clear message if the bucket for tokens does not exist."""
    if await access.js.stream_info(access.names.tokens) is None:
        raise OperationError(
            "unavailable",
            f"there is no {access.names.tokens}",
            str(STREAM_NOT_FOUND),
            remedy=f": run angarium setup (JetStream error {STREAM_NOT_FOUND})",
        )
