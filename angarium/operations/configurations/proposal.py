"""A proposed configuration: compared with the stored one, and stored if that is still the same.

Every operation that changes a receiver uses this module, so that all show the same changes, keep the same
secrets, and overwrite nothing that another user put meanwhile.
"""

import base64
import secrets
import time
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from actors.configuration.parsing import parse
from actors.configuration.policy import Policy
from actors.configuration.signing_secrets import PREFIXES, Kind, secret_key
from actors.configuration.transform import KEY_PREFIX
from angarium.access import Access
from angarium.delivery.signing import public_key
from angarium.operations.configurations.changes import MemberChange, changes_between, secrets_of
from angarium.operations.configurations.stored import require_stored
from angarium.operations.configurations.url_check import UrlObjection, objections, profile_notes
from angarium.operations.failures import OperationError
from angarium.settings import Settings
from streams.buckets.stored_configurations import Configuration

SECRET_BYTES = 32
CLOCK_SKEW_MAX_S = 60.0
"""Largest difference between the clocks of users who change receivers: an old secret may sign that much
longer."""


class PutResult(Struct, frozen=True, kw_only=True):
    """The result: `secret` is the one that was made for the receiver, `secrets` how many sign now.

    `public_keys` are those of the secrets that have one. `changes` are those of the one that it replaced.
    `notes` say why nodes may not post to a new URL, which member does nothing, and to which events a
    transform does not apply.
    """

    receiver: str
    revision: int
    replaced: bool
    secret: str | None
    secrets: int
    public_keys: list[str]
    changes: list[MemberChange]
    notes: list[UrlObjection]


class Proposal(Struct, frozen=True, kw_only=True):
    """A configuration to be stored instead of `before` (None: it is new), and its changes to `stored`.

    `new_secret` is the secret that was made for it. The repr shows nothing, for it holds secrets.
    """

    receiver: str
    before: Configuration | None
    stored: dict[str, Any]
    members: dict[str, Any]
    policy: Policy
    changes: list[MemberChange]
    new_secret: str | None
    notes: list[UrlObjection]

    def __repr__(self) -> str:
        return f"Proposal({self.receiver})"

    @property
    def is_new(self) -> bool:
        """True if it differs from the stored one, even by a default that is written out."""
        return self.before is None or self.members != self.stored

    def result(self, revision: int) -> PutResult:
        """The result once it is stored as that revision."""
        signing = len(self.policy.secrets) + len(self.policy.old_secrets)
        return PutResult(
            receiver=self.receiver,
            revision=revision,
            replaced=self.before is not None,
            secret=self.new_secret,
            secrets=signing,
            public_keys=public_keys(self.policy),
            changes=self.changes,
            notes=self.notes,
        )


def propose(
    name: str,
    members: dict[str, Any],
    before: Configuration | None,
    stored: dict[str, Any],
    settings: Settings,
    *,
    new_secret: str | None = None,
) -> Proposal:
    """Check a configuration and compare it, without old secrets that have ended. Raises InvalidPolicy.

    If it needs a key of pseudonyms and has none, one is made.
    """
    now = time.time()
    members, stored = _with_pseudonym_key(_without_ended(members, now)), dict(stored)
    policy, _ = parse(msgspec.json.encode(members), strict=True)
    same_url = before is not None and stored.get("url") == policy.url
    return Proposal(
        receiver=name,
        before=before,
        stored=stored,
        members=members,
        policy=policy,
        changes=[] if before is None else changes_between(_without_ended(stored, now), members),
        new_secret=new_secret,
        notes=[
            *([] if same_url else objections(policy.url, settings)),
            *profile_notes(name, policy, settings),
            *_order_notes(policy),
            *(_transform_notes(name, policy, stored, members) if before is not None else []),
        ],
    )


def public_keys(policy: Policy) -> list[str]:
    """The public keys of the secrets that sign, the newest first."""
    signing = (*policy.secrets, *(each.secret for each in policy.old_secrets))
    return [key for each in signing if (key := public_key(each)) is not None]


async def store(access: Access, proposal: Proposal) -> PutResult:
    """Store the proposal if the stored configuration is still the compared one. Raises `OperationError`."""
    access.admit_change(proposal.receiver)
    raw = msgspec.json.encode(proposal.members)
    expected = 0 if proposal.before is None else proposal.before.revision
    answer = await access.configurations.put(proposal.receiver, raw, expected)
    return proposal.result(require_stored(proposal.receiver, answer).position)


def check_revision(name: str, before: Configuration | None, expected: int | None) -> None:
    """Refuse if the configuration is not the one that the caller saw (0: none). Raises `OperationError`."""
    found = 0 if before is None else before.revision
    if expected is not None and found != expected:
        raise OperationError(
            "conflict",
            f"{name} was changed by another user (revision {found}, not {expected}); check it, "
            "then try again",
        )


def new_secret_text(kind: Kind) -> str:
    """A new secret."""
    prefix = next(each for each in PREFIXES if PREFIXES[each] == kind)
    return prefix + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def kind_of(signing: list[Any]) -> Kind:
    """The algorithm of the newest of these secrets; the default if there is none that can be used."""
    found = secret_key(signing[0]) if signing and isinstance(signing[0], str) else ""
    return "hmac-sha256" if isinstance(found, str) else found.kind


def _without_ended(members: dict[str, Any], now: float) -> dict[str, Any]:
    """The members without the old secrets that sign nothing any more."""
    old_secrets = secrets_of(members, "old_secrets")
    left = [each for each in old_secrets if not _has_ended(each, now)]
    if len(left) == len(old_secrets):
        return members
    rest = {name: value for name, value in members.items() if name != "old_secrets"}
    return rest | {"old_secrets": left} if left else rest


def _with_pseudonym_key(members: dict[str, Any]) -> dict[str, Any]:
    """The members with a key of pseudonyms, if they need one: they may have none yet."""
    match members:
        case {"transform": {"pseudonymize": [_, *_]}} if members.get("pseudonym_key") is None:
            key = KEY_PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()
            return members | {"pseudonym_key": key}
        case _:
            return members


def _order_notes(policy: Policy) -> list[UrlObjection]:
    """The note that a learnt number of attempts in flight needs an order that allows several."""
    if policy.order == "relaxed" or not policy.adaptive.concurrency:
        return []
    text = "adaptive.concurrency does nothing in strict order, which has one attempt in flight"
    return [UrlObjection(text, with_flags=text)]


def _transform_notes(
    name: str, policy: Policy, stored: dict[str, Any], members: dict[str, Any]
) -> list[UrlObjection]:
    """The note that a new transform does not change the body of an event that was tried."""
    if policy.transform is None or stored.get("transform") == members["transform"]:
        return []
    text = "events that were tried already keep the transform of their first attempt, or have none"
    return [
        UrlObjection(text, with_flags=f"{text}; angarium receiver skip {name} gives the first of them up")
    ]


def _has_ended(old: Any, now: float) -> bool:
    match old:
        case {"until": str() as until}:
            try:
                end = datetime.fromisoformat(until)
            except ValueError:
                return False
            return end.tzinfo is not None and end.timestamp() + CLOCK_SKEW_MAX_S <= now
        case _:
            return False
