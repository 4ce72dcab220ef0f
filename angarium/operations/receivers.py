"""Configurations of receivers, as the command line puts and shows them.

A configuration is stored as it was given, not completed: a default that is filled in today would outlive
its own change. It is checked strictly all the same. One that replaces another does so only if that is still
there.
"""

import base64
import secrets
from collections.abc import Callable
from ipaddress import ip_address, ip_network
from typing import Any

import click
import msgspec
from msgspec import Struct

from actors.errors import InvalidPolicy
from actors.ids import check_tenant, split_receiver
from actors.policy import Policy, parse, rate_members
from angarium import logs
from angarium.connecting import installation, open_jetstream
from angarium.delivery.connections.guard import denying, not_public
from angarium.delivery.target import InvalidTarget, parse_target
from angarium.operations import ask
from angarium.settings import Settings
from angarium.terminal import output
from streams.nats.answers import Answer, Refused, Stored, Unanswered
from streams.receivers import WRONG_LAST_SEQUENCE, Configuration, Receivers

SECRET_BYTES = 32


class Draft(Struct, frozen=True, kw_only=True):
    """A configuration that is to be put. `keep`: with the secrets that are there; `renew`: with a new one."""

    members: dict[str, Any]
    keep: bool = False
    renew: bool = False


def members_of(text: bytes) -> dict[str, Any]:
    """The members of a configuration given as JSON. Raises InvalidPolicy."""
    try:
        members = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidPolicy([f"configuration: not valid JSON ({error})"]) from None
    if not isinstance(members, dict):
        raise InvalidPolicy(["configuration: must be a JSON object"])
    return members


async def put(settings: Settings, name: str, draft: Draft) -> dict[str, Any]:
    """Put it and say what was done; `secret` is the one that was made for it, or None."""
    split_receiver(name)
    async with open_jetstream(settings) as js:
        receivers = Receivers(js, installation(settings).names)
        before = await receivers.get(name)
        members, made = _signed(name, draft, before)
        raw = msgspec.json.encode(members)
        parse(raw, strict=True)
        for warning in _edge(members["url"], settings):
            output.note(f"note: {warning}")
        answer = await receivers.put(name, raw, None if before is None else before.revision)
    stored = _stored(name, answer)
    return {"receiver": name, "revision": stored.sequence, "replaced": before is not None, "secret": made}


def _signed(name: str, draft: Draft, before: Configuration | None) -> tuple[dict[str, Any], str | None]:
    """The members with the secrets to sign with, and the secret that was made for it, if one was."""
    if "secrets" in draft.members:
        return draft.members, None
    had = [] if before is None else _secrets(before.raw)
    if draft.keep and before is not None:
        return draft.members | {"secrets": had}, None
    if had and not draft.renew:
        raise click.UsageError(
            f"{name} has secrets: say --keep-secrets, --new-secret, --secret or --unsigned"
        )
    made = "whsec_" + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()
    return draft.members | {"secrets": [made]}, made


def _secrets(raw: bytes) -> list[Any]:
    """The secrets of a configuration, be the rest of it valid or not."""
    try:
        found = members_of(raw).get("secrets")
    except InvalidPolicy:
        return []
    return found if isinstance(found, list) else []


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


def _stored(name: str, answer: Answer) -> Stored:
    match answer:
        case Stored():
            return answer
        case Refused(code, _) if code == WRONG_LAST_SEQUENCE:
            raise click.ClickException(
                f"{name} was changed by somebody else just now; look at it, then try again"
            )
        case Refused(code, text):
            raise click.ClickException(f"NATS refused it: {text} (JetStream error {code})")
        case Unanswered(why):
            raise click.ClickException(f"nobody confirmed it ({why}); look with angarium receiver get {name}")


async def get(settings: Settings, name: str) -> tuple[dict[str, Any], list[str], list[str]]:
    """The members without what may be secret, why they are not in force, and what is ignored of them."""
    split_receiver(name)
    async with open_jetstream(settings) as js:
        found = await Receivers(js, installation(settings).names).get(name)
    if found is None:
        raise click.ClickException(f"there is no receiver {name}; angarium receiver list shows all")
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
    known = {each.encode_name for each in msgspec.structs.fields(Policy)} - {"secrets", "headers"}
    shown = {name: value if name in known else _hidden(value) for name, value in members.items()}
    return shown, problems, warnings


def _hidden(value: Any) -> Any:
    """How much there is of what may be a secret. What is misspelt may be one, too."""
    match value:
        case dict():
            return dict.fromkeys(value, logs.HIDDEN)
        case list():
            return [logs.HIDDEN] * len(value)
        case _:
            return logs.HIDDEN


async def overview(settings: Settings, tenant: str | None) -> list[dict[str, Any]]:
    """A row for each receiver, in alphabetical order."""
    if tenant is not None:
        check_tenant(tenant)
    async with open_jetstream(settings) as js:
        found = await Receivers(js, installation(settings).names).all(tenant or "*")
    return [_row(name, each.raw) for name, each in found.items()]


def _row(name: str, raw: bytes) -> dict[str, Any]:
    members, problems, warnings = _shown(raw)
    rate = members.get("rate")
    return {
        "receiver": name,
        "url": _place(members.get("url", "")),
        "order": members.get("order", "strict"),
        "rate": None if rate is None else _rate(rate),
        "signed": bool(members.get("secrets")),
        "paused": members.get("paused", False),
        "problem": "; ".join(problems + warnings) or None,
    }


def _place(url: object) -> str:
    """The URL without its query; one that nobody can take apart is hidden, since a password may be in it."""
    try:
        parse_target(text := str(url))
    except InvalidTarget:
        return logs.HIDDEN if url else ""
    return logs.redact(text)


def _rate(rate: Any) -> str:
    members = rate_members(rate) if isinstance(rate, str) else rate
    match members:
        case {"limit": int() | float() as limit, **rest}:
            return f"{limit:g}/{rest.get('per', 'second')}"
        case _:
            return "?"


async def remove(settings: Settings, name: str, agreed: Callable[[str], bool]) -> bool:
    """Remove it; `agreed` is asked with how much waits, if anything does. False: it was not."""
    split_receiver(name)
    async with open_jetstream(settings) as js:
        names = installation(settings).names
        receivers = Receivers(js, names)
        if await receivers.get(name) is None:
            raise click.ClickException(f"there is no receiver {name}; angarium receiver list shows all")
        waiting = await ask.waiting(js, names, name)
        if waiting and not agreed(waiting):
            return False
        _stored(name, await receivers.delete(name))
        if waiting and not await ask.until_gone(js, names, name):
            output.note("note: no node has discarded yet what waits; the one that owns the receiver will")
        return True
