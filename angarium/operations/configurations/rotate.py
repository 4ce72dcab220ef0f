"""Gives a receiver a new signing secret; the old one also signs until the overlap ends by itself.

The end of an old secret is stored in the configuration, and each node checks its own clock when it signs. So
no operator has to drop it later, and no crash makes it sign for longer.
(docs/decisions/secret-rotation.md)
"""

import time
from datetime import UTC, datetime

from msgspec import Struct

from actors.configuration.parsing import members_of
from actors.configuration.signing_secrets import Kind
from actors.ids import split_receiver
from angarium.access import Access
from angarium.operations.configurations.changes import secrets_of
from angarium.operations.configurations.proposal import (
    check_revision,
    kind_of,
    new_secret_text,
    propose,
    store,
)
from angarium.operations.configurations.stored import not_found
from angarium.operations.failures import OperationError, operation

OVERLAP_MAX_S = 90 * 86_400.0


class RotatedSecret(Struct, frozen=True, kw_only=True):
    """The new secret, shown this once; `until` is the end of those before it, None if none is left.

    `public_keys` are those of all that sign and have any, the newest first.
    """

    receiver: str
    revision: int
    secret: str
    secrets: int
    public_keys: list[str]
    until: str | None


@operation
async def rotate_secret(
    access: Access, name: str, overlap_s: float, *, kind: Kind | None = None, revision: int | None = None
) -> RotatedSecret:
    """Sign with a new secret from now on, and for `overlap_s` with the current ones, too.

    The new one signs with what `kind` says, by default with what the current one does. Old secrets whose end
    is set already keep it; without an overlap all end at once.
    Fails as not_found, invalid (more secrets than there may be) and a conflict.
    """
    split_receiver(name)
    if not 0 <= overlap_s <= OVERLAP_MAX_S:
        raise OperationError("invalid", f"overlap: must be from 0s to {OVERLAP_MAX_S / 86_400:g}d")
    before = await access.configurations.get(name)
    if before is None:
        raise not_found(name)
    check_revision(name, before, revision)
    stored = members_of(before.raw)
    end = datetime.fromtimestamp(int(time.time() + overlap_s), UTC)
    secret = new_secret_text(kind or kind_of(secrets_of(stored)))
    until = end.strftime("%Y-%m-%dT%H:%M:%SZ")
    old_secrets: list[object] = []
    if overlap_s:
        old_secrets += [{"secret": each, "until": until} for each in secrets_of(stored)]
        old_secrets += secrets_of(stored, "old_secrets")
    members = stored | {"secrets": [secret], "old_secrets": old_secrets}
    if not old_secrets:
        del members["old_secrets"]
    proposal = propose(name, members, before, stored, access.settings, new_secret=secret)
    done = await store(access, proposal)
    ends = [each.until for each in proposal.policy.old_secrets]
    return RotatedSecret(
        receiver=name,
        revision=done.revision,
        secret=secret,
        secrets=done.secrets,
        public_keys=done.public_keys,
        until=max(ends).strftime("%Y-%m-%dT%H:%M:%SZ") if ends else None,
    )
