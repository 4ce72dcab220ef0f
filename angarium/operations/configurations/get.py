"""Shows the configurations of receivers as they were put, one or a page, without possible secrets.

The names of a page come from the leader of the bucket, and only its own configurations are read.
"""

from typing import Any

from msgspec import Struct

from actors.configuration.parsing import members_of, parse
from actors.errors import InvalidPolicy
from actors.ids import check_tenant, split_receiver
from angarium.access import Access
from angarium.operations.configurations.masks import masked
from angarium.operations.configurations.stored import not_found
from angarium.operations.failures import operation
from streams.buckets.stored_configurations import Configuration


class ShownConfiguration(Struct, frozen=True, kw_only=True):
    """The members with masks, why they are not in force (`problems`), and which are ignored (`warnings`)."""

    members: dict[str, Any]
    revision: int
    problems: list[str]
    warnings: list[str]


@operation
async def get_configuration(access: Access, name: str) -> ShownConfiguration:
    """The configuration of a receiver. Fails as not_found."""
    split_receiver(name)
    found = await access.configurations.get(name)
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
        problems = [*stored.unopened]
    except InvalidPolicy as error:
        problems = error.problems
    return ShownConfiguration(members=members, revision=stored.revision, problems=problems, warnings=warnings)


class ConfigurationPage(Struct, frozen=True, kw_only=True):
    """The configurations by receiver, in alphabetical order, and whether others follow."""

    receivers: dict[str, ShownConfiguration]
    more: bool


@operation
async def list_configurations(access: Access, tenant: str, after: str, limit: int) -> ConfigurationPage:
    """The first receivers of the tenant after the name `after`, at most `limit`."""
    check_tenant(tenant)
    configurations = access.configurations
    names = [each for each in await configurations.names(tenant) if each > f"{tenant}.{after}"]
    found: dict[str, ShownConfiguration] = {}
    while names and len(found) <= limit:
        # Some may be removed: for these the bucket contains the removal.
        some, names = names[: limit + 1], names[limit + 1 :]
        found |= {name: shown(each) for name, each in (await configurations.get_many(some)).items()}
    return ConfigurationPage(receivers=dict(list(found.items())[:limit]), more=len(found) > limit)
