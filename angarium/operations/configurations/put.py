"""Puts the configuration of a receiver.

It is stored as it was given, without defaults: a default that is filled in today would stay when the default
changes. It is checked strictly nevertheless. It replaces another configuration only if that is still the
stored one, and leaves out only members that were dropped on purpose.
"""

from typing import Any

from msgspec import Struct

from actors.configuration.signing_secrets import Kind
from actors.ids import split_receiver
from angarium.access import Access
from angarium.operations.configurations.changes import MemberChange, secrets_of
from angarium.operations.configurations.masks import unmasked
from angarium.operations.configurations.proposal import (
    Proposal,
    PutResult,
    check_revision,
    kind_of,
    new_secret_text,
    propose,
    store,
)
from angarium.operations.configurations.stored import readable_members
from angarium.operations.failures import OperationError, operation
from angarium.settings import Settings
from streams.buckets.stored_configurations import Configuration

WOULD_LOSE_CODE = "would_lose"
"""The code of the failure if the put would drop members without the caller's consent."""


class NewConfiguration(Struct, frozen=True, kw_only=True):
    """A configuration to be put.

    - `members`: without them, the stored ones with other secrets.
    - `add_secret`: put before the existing secrets; if it is empty, a new one is made.
    - `secret_kind`: what a new secret signs with; by default what the newest of the stored ones does.
    - `drop_old_secrets`: leaves only the newest secret.
    - `replace`: it may leave out members of the stored one, which then go back to their defaults.
    - `revision`: the one from which it was made (0: there was none), so that no other one is replaced.
    """

    members: dict[str, Any] | None
    add_secret: str | None = None
    secret_kind: Kind | None = None
    drop_old_secrets: bool = False
    replace: bool = False
    revision: int | None = None


@operation
async def put_configuration(
    access: Access, name: str, new: NewConfiguration, *, dry_run: bool = False
) -> PutResult:
    """Store the configuration, if the stored one is still the one that it was compared with.

    A `dry_run` stores nothing: its result has the current revision. Fails as invalid if members would be
    dropped without consent, as not_found, and as a conflict.
    """
    split_receiver(name)
    before = await access.configurations.get(name)
    check_revision(name, before, new.revision)
    proposal = proposed(name, new, before, access.settings)
    if dry_run:
        return proposal.result(0 if before is None else before.revision)
    return await store(access, proposal)


def proposed(name: str, new: NewConfiguration, before: Configuration | None, settings: Settings) -> Proposal:
    """Compare the new configuration with the stored one. Raises `OperationError` and InvalidPolicy."""
    stored = None if before is None else readable_members(before.raw)
    members, new_secret = _with_secrets(new, _unmasked_members(name, new, stored), stored)
    proposal = propose(name, members, before, stored or {}, settings, new_secret=new_secret)
    _refuse_losses(name, new, proposal.changes)
    return proposal


def _unmasked_members(name: str, new: NewConfiguration, stored: dict[str, Any] | None) -> dict[str, Any]:
    """The given members, with stored values in place of masks."""
    if new.members is None:
        if stored is None:
            raise OperationError(
                "not_found",
                f"there is no receiver {name} yet",
                remedy="; give its configuration too, at least its --url",
            )
        return stored
    if stored and "url" not in new.members:
        raise OperationError(
            "invalid",
            f"url: missing; put replaces the whole configuration of {name}",
            remedy=f": save the output of angarium receiver get {name}, change it, and put it with --file",
        )
    return unmasked(name, new.members, stored or {})


def _with_secrets(
    new: NewConfiguration, members: dict[str, Any], stored: dict[str, Any] | None
) -> tuple[dict[str, Any], str | None]:
    """The members with the secrets that sign, and the new secret, or None.

    Without any mention of secrets they stay as they are; a new receiver gets one.
    """
    new_secret = None
    if "pseudonym_key" not in members and stored and "pseudonym_key" in stored:
        members = members | {"pseudonym_key": stored["pseudonym_key"]}
    if new.add_secret == "" or (new.add_secret is None and "secrets" not in members and not stored):
        new_secret = new_secret_text(new.secret_kind or kind_of(secrets_of(stored or {})))
    if not isinstance(members.get("secrets", []), list):
        return members, None  # `parse` refuses it.
    signing = secrets_of(members if "secrets" in members else stored or {})
    if (newest := new_secret or new.add_secret) is not None:
        signing = [newest, *(each for each in signing if each != newest)]
    old_secrets = secrets_of(stored or {}, "old_secrets")
    if new.drop_old_secrets:
        signing = signing[:1]
        members = {each: value for each, value in members.items() if each != "old_secrets"}
    elif old_secrets and "old_secrets" not in members:
        members = members | {"old_secrets": old_secrets}
    unsaid = not signing and "secrets" not in members
    return (members if unsaid else members | {"secrets": signing}), new_secret


def _refuse_losses(name: str, new: NewConfiguration, changes: list[MemberChange]) -> None:
    dropping = new.drop_old_secrets
    secrets = ("secrets", "old_secrets")
    lost = [each for each in changes if each.lost and not (dropping and each.member in secrets)]
    if not lost or new.replace:
        return
    remedy = f"repeat it (angarium receiver get {name} shows all), or give --replace to drop it"
    if [each.member for each in lost] == ["secrets"]:
        remedy = "--add-secret keeps the old ones; give --replace to drop them"
    names = tuple(map(str, lost))
    raise OperationError(
        "invalid", f"{name} would lose {'; '.join(names)}", WOULD_LOSE_CODE, names, remedy=f": {remedy}"
    )
