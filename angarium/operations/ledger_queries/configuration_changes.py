"""Changes of a configuration in the ledger, member by member, without values that may be secret."""

from typing import Any

import msgspec
from msgspec import Struct

from angarium.ledger.configurations import differing_members
from angarium.operations.configurations.changes import changes_between
from streams.buckets.without_secrets import SAFE_MEMBERS


class ChangedMember(Struct, frozen=True):
    """A member and its old and new value in words; both are None if it may be secret."""

    member: str
    old: str | None
    new: str | None

    def __str__(self) -> str:
        return f"{self.member} changed" if self.old is None else f"{self.member}: {self.old} → {self.new}"


def changed_members(before: str | None, after: str) -> list[ChangedMember]:
    """The members that differ between two configurations as the ledger keeps them."""
    found = list[ChangedMember]()
    old, new = _members(before), _members(after)
    for name in differing_members(before, after):
        values = changes_between(_only(name, old), _only(name, new)) if name in SAFE_MEMBERS else []
        found += [ChangedMember(each.member, each.old, each.new) for each in values] or [
            ChangedMember(name, None, None)
        ]
    return found


def _members(document: str | None) -> dict[str, Any]:
    return {} if document is None else msgspec.json.decode(document)


def _only(name: str, members: dict[str, Any]) -> dict[str, Any]:
    return {name: members[name]} if name in members else {}
