"""Shows the configuration of a receiver as it was put, without what may be secret."""

from typing import Any

from msgspec import Struct

from actors.errors import InvalidPolicy
from actors.ids import split_receiver
from actors.policy import parse
from angarium.connecting import Access
from angarium.operations.failures import operation
from angarium.operations.receivers.masks import masked
from angarium.operations.receivers.stored import members_of, not_found
from streams.receivers import Configuration, Receivers


class ShownConfiguration(Struct, frozen=True, kw_only=True):
    """The members with masks, why they are not in force (`problems`), and what is ignored (`warnings`)."""

    members: dict[str, Any]
    revision: int
    problems: list[str]
    warnings: list[str]


@operation
async def get(to: Access, name: str) -> ShownConfiguration:
    """Look it up. Fails as not_found."""
    split_receiver(name)
    found = await Receivers(to.js, to.names).get(name)
    if found is None:
        raise not_found(name)
    return shown(found)


def shown(stored: Configuration) -> ShownConfiguration:
    """The configuration as it may be shown."""
    members: dict[str, Any] = {}
    problems: list[str] = []
    warnings: list[str] = []
    try:
        members = masked(members_of(stored.raw))
        _, warnings = parse(stored.raw, strict=False)
    except InvalidPolicy as error:
        problems = error.problems
    return ShownConfiguration(members=members, revision=stored.revision, problems=problems, warnings=warnings)
