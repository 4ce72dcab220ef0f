"""Writes receivers as a document for `apply`, without possible secrets."""

from typing import Any

from msgspec import Struct

from actors.configuration.parsing import members_of
from actors.errors import InvalidPolicy
from actors.ids import check_tenant
from angarium.access import Access
from angarium.operations.configurations.masks import masked
from angarium.operations.failures import operation


class ExportedReceivers(Struct, frozen=True, kw_only=True):
    """The configurations by receiver, with masks, and the unreadable ones."""

    receivers: dict[str, dict[str, Any]]
    unreadable: list[str]


@operation
async def export(access: Access, tenant: str | None = None) -> ExportedReceivers:
    """All receivers, or a tenant's, in alphabetical order."""
    if tenant is not None:
        check_tenant(tenant)
    receivers: dict[str, dict[str, Any]] = {}
    unreadable: list[str] = []
    for name, found in (await access.configurations.all(tenant or "*")).items():
        try:
            receivers[name] = masked(members_of(found.raw))
        except InvalidPolicy:
            unreadable.append(name)
    return ExportedReceivers(receivers=receivers, unreadable=unreadable)
