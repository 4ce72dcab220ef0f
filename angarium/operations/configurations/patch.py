"""Changes some members of a receiver's configuration (RFC 7396)."""

from typing import Any

import msgspec

from actors.allowed_values import unknown_member
from actors.configuration.parsing import members_of, rate_members
from actors.configuration.policy import Policy
from actors.errors import InvalidPolicy
from actors.ids import split_receiver
from angarium.access import Access
from angarium.operations.configurations.masks import unmasked
from angarium.operations.configurations.proposal import PutResult, check_revision, propose, store
from angarium.operations.configurations.stored import not_found
from angarium.operations.failures import operation

_KNOWN = frozenset(each.encode_name for each in msgspec.structs.fields(Policy))


@operation
async def patch_configuration(
    access: Access, name: str, change: dict[str, Any], *, revision: int | None = None, dry_run: bool = False
) -> PutResult:
    """Store the members of `change`; a member that is None goes back to its default.

    `revision` is the one for which the change was made. A `dry_run` stores nothing, and neither does a change
    without effect: its result has the current revision. Fails as not_found, invalid and a conflict.
    """
    split_receiver(name)
    before = await access.configurations.get(name)
    if before is None:
        raise not_found(name)
    check_revision(name, before, revision)
    stored = members_of(before.raw)
    members = unmasked(name, merged(stored, change), stored)
    proposal = propose(name, members, before, stored, access.settings)
    if dry_run or not proposal.is_new:
        return proposal.result(before.revision)
    return await store(access, proposal)


def merged(stored: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """The members with the change in them.

    Raises InvalidPolicy if it takes away an unknown member, or changes a part of several rates.

    A rate may be stored as a text; its members can still be changed one by one. One that is given as a text
    names no burst, so the stored one stays. The names of headers are case-insensitive.
    """
    if unknown := [each for each in change if change[each] is None and not _is_there(each, stored)]:
        raise InvalidPolicy([f"{each}: {unknown_member(each, _KNOWN)}" for each in unknown])
    whole = dict(stored)
    if isinstance(rate := stored.get("rate"), str):
        whole["rate"] = rate_members(rate)
    match change.get("rate"), whole.get("rate"):
        case str() as given, {"burst": _}:
            change = change | {"rate": rate_members(given) or given}
        case dict() as given, list() if "limit" not in given:
            raise InvalidPolicy(["rate: several are stored; give all of them again, with what is to change"])
    if isinstance(headers := change.get("headers"), dict) and isinstance(stored.get("headers"), dict):
        spelling = {each.lower(): each for each in stored["headers"]}
        change = change | {"headers": {spelling.get(each.lower(), each): headers[each] for each in headers}}
    merged: dict[str, Any] = _merged(whole, change)
    # Members that it does not mention stay as they were written.
    return merged | ({"rate": rate} if rate is not None and "rate" not in change else {})


def _is_there(name: str, stored: dict[str, Any]) -> bool:
    return name in _KNOWN or name in stored


def _merged(before: Any, change: Any) -> Any:
    if not isinstance(change, dict):
        return change
    merged = dict(before) if isinstance(before, dict) else {}
    for name, value in change.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merged(merged.get(name), value)
    return merged
