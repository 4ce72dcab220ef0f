"""A receiver's configuration as the command line gives it: by flags, or as JSON."""

from typing import Any

import click

from angarium import quantities
from angarium.cli.receiver_options import MEMBERS, parameter
from angarium.operations.receivers import Draft, members_of


def draft(text: bytes | None, given: dict[str, Any]) -> Draft:
    """The configuration that was asked for, as JSON or by flags. Raises click.UsageError, InvalidPolicy."""
    members = _from_flags(given)
    if text is not None:
        if members:
            raise click.UsageError("a configuration is given as JSON or by flags, not by both")
        members = members_of(text)
    choices = [name for name in ("secrets", "keep_secrets", "new_secret", "unsigned") if given[name]]
    if len(choices) + ("secrets" in members) > 1:
        raise click.UsageError("it is said more than once which secrets to sign with; say it once")
    if given["secrets"]:
        members["secrets"] = list(given["secrets"])
    elif given["unsigned"]:
        members["secrets"] = []
    return Draft(members=members, keep=given["keep_secrets"], renew=given["new_secret"])


def _from_flags(given: dict[str, Any]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for _, path, _, _ in MEMBERS:
        outer, _, inner = path.partition(".")
        if (value := given[parameter(path)]) is not None:
            if inner:
                members.setdefault(outer, {})[inner] = value
            else:
                members[outer] = value
    burst = members.pop("burst", None)
    if "rate" in members:
        rate = quantities.rate(members["rate"], burst)
        members["rate"] = {"limit": rate.limit, "per": rate.per} | ({"burst": burst} if burst else {})
    elif burst is not None:
        raise click.UsageError("--burst goes with --rate; give that too")
    if given["events"] and given["direct_only"]:
        raise click.UsageError("--event and --direct-only contradict each other; give one")
    if given["events"] or given["direct_only"]:
        members["events"] = list(given["events"])
    if given["headers"]:
        members["headers"] = dict(map(_header, given["headers"]))
    if given["paused"]:
        members["paused"] = True
    return members


def _header(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise click.UsageError("--header: write it as NAME=VALUE")
    return name, value
