"""A configuration as it is stored: with sealed secrets, and fingerprints that show if one has changed."""

from typing import Any

import msgspec
from msgspec import Struct

from actors.configuration.parsing import DOCUMENT_MAX, bounded_members, members_of
from actors.configuration.secret_places import SECRET_MEMBERS
from actors.errors import InvalidPolicy
from streams.buckets.change_trail import shown_document
from streams.buckets.follower import is_removal
from streams.buckets.without_secrets import fingerprint
from streams.nats.answers import StoredMessage
from streams.sealing.documents import UNENCRYPTED, keys_used, opened, sealed
from streams.sealing.keys import Keys

NO_KEY = (
    "this installation seals secrets, and this process has no key to seal with; give it the key file "
    "(ANGARIUM_KEY_FILE), or leave the secret out to keep the stored one"
)


class SealedDocument(Struct, frozen=True):
    """A configuration to be stored.

    - `fingerprints`: those of its sealed members, for its header.
    - `unencrypted`: places of secrets that are new and not sealed, because there is no key.
    - `problems`: why it may not be stored.
    """

    raw: bytes
    fingerprints: dict[str, str]
    unencrypted: tuple[str, ...]
    problems: tuple[str, ...]


def sealed_document(keys: Keys, receiver: str, raw: bytes, last: StoredMessage | None) -> SealedDocument:
    """Seal a configuration that is to be stored after `last`."""
    before, members = members_in(last), members_of(raw)
    found = sealed(keys, receiver, members, before)
    problems = found.problems
    if found.members != members:
        raw = msgspec.json.encode(found.members)
        if len(raw) > DOCUMENT_MAX:
            size = f"is {len(raw)} bytes with sealed secrets, at most {DOCUMENT_MAX}"
            problems += (f"configuration: {size}; shorten it",)
    old, new = (opened(keys, receiver, each).members for each in (before, found.members))
    shown = {} if last is None or is_removal(last) else shown_document(last)
    fingerprints = {
        # The secrets are the same, so the trail must show no change.
        name: shown[name] if name in old and old[name] == new[name] else fingerprint(found.members[name])
        for name in sorted(SECRET_MEMBERS & found.members.keys())
        if set(keys_used({name: found.members[name]})) - {UNENCRYPTED}
    }
    return SealedDocument(raw, fingerprints, found.unencrypted, problems)


def members_in(message: StoredMessage | None) -> dict[str, Any]:
    """The members as they are stored; none after a removal, or if they cannot be read."""
    if message is None or is_removal(message):
        return {}
    try:
        return bounded_members(message.data)
    except InvalidPolicy:
        return {}
