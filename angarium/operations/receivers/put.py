"""Puts the configuration of a receiver.

It is stored as it was given, not completed: a default that is filled in today would outlive its own change.
It is checked strictly all the same. One that replaces another does so only if that is still there, and leaves
out nothing of it that nobody gave up.
"""

import base64
import secrets
from typing import Any

import msgspec
from msgspec import Struct

from actors.errors import InvalidPolicy
from actors.ids import split_receiver
from actors.policy import parse
from angarium.connecting import Access
from angarium.operations.failures import OperationError, operation
from angarium.operations.receivers.changes import Change, between, secrets_of
from angarium.operations.receivers.edge import objections
from angarium.operations.receivers.masks import unmasked
from angarium.operations.receivers.stored import confirmed, members_of
from streams.receivers import Receivers

SECRET_BYTES = 32


class NewConfiguration(Struct, frozen=True, kw_only=True):
    """A configuration that is to be put; without `members` the one that is stored, with other secrets.

    `add_secret` is put before those that are there, empty: one is made. `drop_old_secrets` leaves only the
    newest. `replace`: it may leave out what the stored one says, which then falls back to its default.
    """

    members: dict[str, Any] | None
    add_secret: str | None = None
    drop_old_secrets: bool = False
    replace: bool = False


class PutResult(Struct, frozen=True, kw_only=True):
    """The result: `secret` is the one that was made for the receiver, `secrets` how many sign now.

    `changes` are those of the one that it replaced, `notes` say why nodes may not post to a new URL.
    """

    receiver: str
    revision: int
    replaced: bool
    secret: str | None
    secrets: int
    changes: list[Change]
    notes: list[str]


@operation
async def put(to: Access, name: str, new: NewConfiguration) -> PutResult:
    """Store it, if what is there is still what it was compared with.

    Fails as invalid where something would be lost that nobody gave up, as not_found, and as a conflict.
    """
    split_receiver(name)
    receivers = Receivers(to.js, to.names)
    before = await receivers.get(name)
    stored = None if before is None else _readable(before.raw)
    members, made = _signed(new, _filled(name, new, stored), stored)
    raw = msgspec.json.encode(members)
    policy, _ = parse(raw, strict=True)
    changes = [] if stored is None else between(stored, members)
    _refuse_losses(name, new, changes)
    notes = [] if stored and stored.get("url") == policy.url else objections(policy.url, to.settings)
    answer = await receivers.put(name, raw, 0 if before is None else before.revision)
    return PutResult(
        receiver=name,
        revision=confirmed(name, answer).sequence,
        replaced=before is not None,
        secret=made,
        secrets=len(policy.secrets),
        changes=changes,
        notes=notes,
    )


def _readable(raw: bytes) -> dict[str, Any]:
    """The members of what is stored; none of what nobody can read, which has nothing to lose."""
    try:
        return members_of(raw)
    except InvalidPolicy:
        return {}


def _filled(name: str, new: NewConfiguration, stored: dict[str, Any] | None) -> dict[str, Any]:
    """The members that were given, with what is stored where they have masks."""
    if new.members is None:
        if stored is None:
            raise OperationError(
                "not_found",
                f"there is no receiver {name} yet; give its configuration, too, such as its --url",
            )
        return stored
    if stored and "url" not in new.members:
        raise OperationError(
            "invalid",
            f"url: missing; put takes the whole configuration of {name}: "
            f"save what angarium receiver get {name} shows, change it, and put it with --file",
        )
    return unmasked(name, new.members, stored or {})


def _signed(
    new: NewConfiguration, members: dict[str, Any], stored: dict[str, Any] | None
) -> tuple[dict[str, Any], str | None]:
    """The members with the secrets to sign with, and the one that was made for it, if one was.

    Who says nothing of them leaves them as they are; a receiver that is new gets one.
    """
    made = None
    if new.add_secret == "" or (new.add_secret is None and "secrets" not in members and not stored):
        made = "whsec_" + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()
    if not isinstance(members.get("secrets", []), list):
        return members, None  # Which `parse` refuses.
    signing = secrets_of(members if "secrets" in members else stored or {})
    if (newest := made or new.add_secret) is not None:
        signing = [newest, *(each for each in signing if each != newest)]
    if new.drop_old_secrets:
        signing = signing[:1]
    unsaid = not signing and "secrets" not in members
    return (members if unsaid else members | {"secrets": signing}), made


def _refuse_losses(name: str, new: NewConfiguration, changes: list[Change]) -> None:
    dropping = new.drop_old_secrets
    lost = [each for each in changes if each.lost and not (dropping and each.member == "secrets")]
    if not lost or new.replace:
        return
    remedy = f"say it, too (angarium receiver get {name} shows all), or say --replace if it is meant"
    if [each.member for each in lost] == ["secrets"]:
        remedy = "--add-secret keeps the old ones beside a new one; say --replace if it is meant"
    raise OperationError("invalid", f"{name} would lose {'; '.join(map(str, lost))}: {remedy}")
