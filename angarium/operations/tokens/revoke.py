"""Revokes a token: within a second no process of the API accepts it."""

import re

from angarium.access import Access
from angarium.operations.failures import OperationError, operation
from streams.buckets.api_tokens import TokenStore
from streams.nats import answers
from streams.nats.errors import ApiError, NotPermitted

_ID = re.compile(r"[a-z0-9]{12}\Z")


@operation
async def revoke(access: Access, token: str) -> None:
    """Revoke the token with that id. Fails as not_found."""
    tokens = TokenStore(access.js, access.names)
    if not _ID.match(token) or await tokens.find(token) is None:
        raise OperationError(
            "not_found", f"there is no token {token}", remedy="; angarium token list shows all"
        )
    match await tokens.revoke(token):
        case answers.Stored():
            return
        case answers.Refused(code, text):
            raise ApiError(code, text)
        case answers.Forbidden(why):
            raise NotPermitted(why, final=True)
        case answers.Unanswered(why):
            raise OperationError("unanswered", f"NATS did not confirm it ({why}); revoke {token} again")
