"""A receiver's configuration from the command line, as flags or as JSON, and the output about its result."""

from collections.abc import Iterator
from typing import Any

import click
from msgspec import to_builtins

from actors.configuration.parsing import members_of
from angarium import quantities
from angarium.cli.invocation import options
from angarium.cli.receivers.flags import MEMBERS, parameter
from angarium.operations.configurations.proposal import PutResult
from angarium.operations.configurations.put import NewConfiguration


def draft(text: bytes | None, given: dict[str, Any]) -> NewConfiguration:
    """The configuration that was asked for, as JSON or by flags. Raises click.UsageError, InvalidPolicy."""
    members: dict[str, Any] | None = from_flags(given)
    if text is not None:
        if members:
            raise click.UsageError("give the configuration as JSON or with flags, not both")
        members = members_of(text)
    elif not members and (given["add_secret"] is not None or given["drop_old_secrets"]):
        members = None  # Only the secrets of the stored configuration are changed.
    said = [name for name in ("secrets", "unsigned") if given[name]]
    said += ["add_secret"] if said and given["add_secret"] is not None else []
    if len(said) + ("secrets" in (members or {})) > 1:
        raise click.UsageError("the secrets are given more than once; give them once")
    if given["secrets"] or given["unsigned"]:
        members = (members or {}) | {"secrets": list(given["secrets"])}
    return NewConfiguration(
        members=members,
        add_secret=given["add_secret"],
        secret_kind=given["secret_kind"],
        drop_old_secrets=given["drop_old_secrets"],
        replace=given["replace"],
    )


def from_flags(given: dict[str, Any], *, partial: bool = False) -> dict[str, Any]:
    """The members that flags name; with `partial`, burst and margin may come without a rate."""
    members: dict[str, Any] = {}
    for _, path, _, _ in MEMBERS:
        outer, _, inner = path.partition(".")
        if (value := given[parameter(path)]) is not None:
            if inner:
                members.setdefault(outer, {})[inner] = value
            else:
                members[outer] = value
    of_rate = {each: members.pop(each) for each in ("burst", "margin") if each in members}
    if "rate" in members:
        members["rate"] = _rate(members["rate"], **of_rate)
    elif of_rate and partial:
        members["rate"] = of_rate
    elif of_rate:
        raise click.UsageError(f"--{next(iter(of_rate))} needs --rate; give that too")
    if given["events"] and given["direct_only"]:
        raise click.UsageError("--event and --direct-only contradict each other; give one")
    if given["events"] or given["direct_only"]:
        members["events"] = list(given["events"])
    if given["regions"]:
        members["region"] = list(given["regions"])
    if given["headers"]:
        members["headers"] = dict(map(_header, given["headers"]))
    if given.get("paused"):
        members["paused"] = True
    return members


def _rate(
    text: str, burst: int | None = None, margin: float | None = None
) -> dict[str, Any] | list[dict[str, Any]]:
    """The member `rate`: a list if the text names several rates. Raises click.UsageError."""
    rates = [
        options.quantity("--rate", quantities.parse_rate, each.strip(), burst) for each in text.split(",")
    ]  # fmt: skip
    if len(rates) > 1 and burst is not None:
        raise click.UsageError("--burst needs a single --rate; give several with their bursts as JSON")
    more: dict[str, Any] = {"burst": burst} if burst else {}
    more |= {} if margin is None else {"margin": margin}
    found: list[dict[str, Any]] = [{"limit": each.limit, "per": each.per} | more for each in rates]
    return found if len(found) > 1 else found[0]


def take_away(members: dict[str, Any], path: str) -> None:
    """Note that a member goes back to its default. Raises click.UsageError if a value is given, too."""
    outer, dot, inner = path.partition(".")
    nested = members.setdefault(outer, {}) if dot else members
    if not isinstance(nested, dict) or (inner or outer) in nested:
        raise click.UsageError(f"{path} is both set and unset; do one of them")
    nested[inner or outer] = None


def _header(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise click.UsageError("--header: write it as NAME=VALUE")
    return name, value


def document(done: PutResult) -> dict[str, Any]:
    """The result for `--json`, with the notes as sentences."""
    members: dict[str, Any] = to_builtins(done)
    return members | {"notes": list(map(str, done.notes))}


def outcome(done: PutResult) -> Iterator[str]:
    """Reports the result, line by line."""
    if done.replaced and not done.changes:
        yield f"put {done.receiver} again, unchanged (revision {done.revision})"
    else:
        yield f"{'replaced' if done.replaced else 'put'} {done.receiver} (revision {done.revision})"
    yield from (f"  {change}" for change in done.changes if done.replaced)
    if done.secret is not None:
        yield f"secret: {done.secret} (not shown again)"
    yield from (f"public key: {key}" for key in done.public_keys)
    if done.replaced or done.secrets > 1:
        yield _signing(done)


def _signing(done: PutResult) -> str:
    match done.secrets:
        case 0:
            return "requests are not signed"
        case 1:
            return "one secret signs the requests"
        case count:
            return (
                f"{count} secrets sign the requests, the newest first; --drop-old-secrets keeps only that one"
            )
