"""Puts, shows, lists and removes configurations of receivers.

A configuration is stored as it was given, not completed: a default that is filled in today would outlive
its own change. It is checked strictly all the same. One that replaces another does so only if that is still
there, and leaves out nothing of it that nobody gave up.
"""

import base64
import secrets
from collections.abc import Callable
from ipaddress import ip_address, ip_network
from typing import Any

import msgspec
from msgspec import Struct

from actors.errors import InvalidPolicy
from actors.ids import split_receiver
from actors.policy import parse
from angarium.connecting import installation, open_jetstream
from angarium.delivery.connections.guard import denying, not_public
from angarium.delivery.exchange.target import InvalidTarget, parse_target
from angarium.operations import ask
from angarium.operations.errors import BadRequest, Conflict, NotFound, Refused, Unanswered
from angarium.operations.receiver_changes import Change, between, secrets_of
from angarium.operations.receiver_masks import masked, unmasked
from angarium.settings import Settings
from streams.nats import answers
from streams.receivers import WRONG_LAST_SEQUENCE, Receivers

SECRET_BYTES = 32


class Draft(Struct, frozen=True, kw_only=True):
    """A configuration that is to be put; without `members` the one that is stored, with other secrets.

    `add_secret` is put before those that are there, empty: one is made. `drop_old_secrets` leaves only the
    newest. `replace`: it may leave out what the stored one says, which then falls back to its default.
    """

    members: dict[str, Any] | None
    add_secret: str | None = None
    drop_old_secrets: bool = False
    replace: bool = False


class Done(Struct, frozen=True, kw_only=True):
    """The result of a draft: `secret` is the one that was made for it, `secrets` how many sign now.

    `changes` are those of the one that it replaced, `notes` say why nodes may not post to a new URL.
    """

    receiver: str
    revision: int
    replaced: bool
    secret: str | None
    secrets: int
    changes: list[Change]
    notes: list[str]


class Removed(Struct, frozen=True, kw_only=True):
    """Tells whether a receiver was `removed`, and whether all that waited is `discarded` already."""

    removed: bool
    discarded: bool = True


def members_of(text: bytes) -> dict[str, Any]:
    """The members of a configuration given as JSON. Raises InvalidPolicy."""
    try:
        members = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidPolicy([f"configuration: not valid JSON ({error})"]) from None
    if not isinstance(members, dict):
        raise InvalidPolicy(["configuration: must be a JSON object"])
    return members


async def put(settings: Settings, name: str, draft: Draft) -> Done:
    """Put it, if what is there is still what it was compared with.

    Raises InvalidPolicy, BadRequest where something would be lost that nobody gave up, NotFound, Conflict.
    """
    split_receiver(name)
    async with open_jetstream(settings) as js:
        receivers = Receivers(js, installation(settings).names)
        before = await receivers.get(name)
        stored = None if before is None else _readable(before.raw)
        members, made = _signed(name, draft, _filled(name, draft, stored), stored)
        raw = msgspec.json.encode(members)
        policy, _ = parse(raw, strict=True)
        changes = [] if stored is None else between(stored, members)
        _refuse_losses(name, draft, changes)
        notes = [] if stored and stored.get("url") == policy.url else _edge(policy.url, settings)
        answer = await receivers.put(name, raw, 0 if before is None else before.revision)
    return Done(
        receiver=name,
        revision=_stored(name, answer).sequence,
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


def _filled(name: str, draft: Draft, stored: dict[str, Any] | None) -> dict[str, Any]:
    """The members that were given, with what is stored where they have masks."""
    if draft.members is None:
        if stored is None:
            raise NotFound(f"there is no receiver {name} yet; give its configuration, too, such as its --url")
        return stored
    if stored and "url" not in draft.members:
        raise BadRequest(
            f"url: missing; put takes the whole configuration of {name}: "
            f"save what angarium receiver get {name} shows, change it, and put it with --file"
        )
    return unmasked(name, draft.members, stored or {})


def _signed(
    name: str, draft: Draft, members: dict[str, Any], stored: dict[str, Any] | None
) -> tuple[dict[str, Any], str | None]:
    """The members with the secrets to sign with, and the one that was made for it, if one was.

    Who says nothing of them leaves them as they are; a receiver that is new gets one.
    """
    made = None
    if draft.add_secret == "" or (draft.add_secret is None and "secrets" not in members and not stored):
        made = "whsec_" + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()
    if not isinstance(members.get("secrets", []), list):
        return members, None  # Which `parse` refuses.
    signing = secrets_of(members if "secrets" in members else stored or {})
    if (newest := made or draft.add_secret) is not None:
        signing = [newest, *(each for each in signing if each != newest)]
    if draft.drop_old_secrets:
        signing = signing[:1]
    unsaid = not signing and "secrets" not in members
    return (members if unsaid else members | {"secrets": signing}), made


def _refuse_losses(name: str, draft: Draft, changes: list[Change]) -> None:
    dropping = draft.drop_old_secrets
    lost = [each for each in changes if each.lost and not (dropping and each.member == "secrets")]
    if not lost or draft.replace:
        return
    remedy = f"say it, too (angarium receiver get {name} shows all), or say --replace if it is meant"
    if [each.member for each in lost] == ["secrets"]:
        remedy = "--add-secret keeps the old ones beside a new one; say --replace if it is meant"
    raise BadRequest(f"{name} would lose {'; '.join(map(str, lost))}: {remedy}")


def _edge(url: str, settings: Settings) -> list[str]:
    """Why nodes with these settings would not post to the URL.

    Names are not resolved, since nodes may lie where they mean something else.
    """
    try:
        target = parse_target(url)
    except InvalidTarget as error:
        raise InvalidPolicy([str(error)]) from None
    found = []
    if target.scheme != "https" and not settings.allow_http:
        found.append("nodes post to http:// only with --allow-http, as angarium dev has")
    try:
        address = ip_address("127.0.0.1" if target.host == "localhost" else target.host)
    except ValueError:
        return found
    if (network := denying(address, map(ip_network, settings.deny_networks))) is not None:
        return [*found, f"nodes never connect to {target.host}: {network} is denied (--deny-network)"]
    rule = not_public(address)
    networks = [ip_network(each) for each in settings.allow_networks]
    if rule is not None and not any(address in network for network in networks):
        found.append(
            f"nodes connect to {target.host} ({rule}) only with --allow-network; "
            "angarium dev has it for loopback"
        )
    return found


def _stored(name: str, answer: answers.Answer) -> answers.Stored:
    match answer:
        case answers.Stored():
            return answer
        case answers.Refused(code, _) if code == WRONG_LAST_SEQUENCE:
            raise Conflict(f"{name} was changed by somebody else just now; look at it, then try again")
        case answers.Refused(code, text):
            raise Refused(str(code), f"NATS refused it: {text} (JetStream error {code})")
        case answers.Unanswered(why):
            raise Unanswered(f"nobody confirmed it ({why}); look with angarium receiver get {name}")


async def get(settings: Settings, name: str) -> tuple[dict[str, Any], list[str], list[str]]:
    """The members without what may be secret, why they are not in force, and what is ignored of them."""
    split_receiver(name)
    async with open_jetstream(settings) as js:
        found = await Receivers(js, installation(settings).names).get(name)
    if found is None:
        raise _not_found(name)
    return _shown(found.raw)


def _shown(raw: bytes) -> tuple[dict[str, Any], list[str], list[str]]:
    try:
        members = members_of(raw)
    except InvalidPolicy as error:
        return {}, error.problems, []
    problems: list[str] = []
    warnings: list[str] = []
    try:
        _, warnings = parse(raw, strict=False)
    except InvalidPolicy as error:
        problems = error.problems
    return masked(members), problems, warnings


async def remove(settings: Settings, name: str, agreed: Callable[[ask.Waiting], bool]) -> Removed:
    """Remove it; `agreed` is asked with how much waits, if anything does. Raises NotFound."""
    split_receiver(name)
    async with open_jetstream(settings) as js:
        names = installation(settings).names
        receivers = Receivers(js, names)
        if await receivers.get(name) is None:
            raise _not_found(name)
        waiting = await ask.waiting(js, names, name)
        if waiting.count and not agreed(waiting):
            return Removed(removed=False)
        _stored(name, await receivers.delete(name))
        return Removed(removed=True, discarded=not waiting.count or await ask.until_gone(js, names, name))


def _not_found(name: str) -> NotFound:
    return NotFound(f"there is no receiver {name}; angarium receiver list shows all")
