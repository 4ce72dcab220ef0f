"""Alerts: the problems that `angarium doctor` would report now, for monitoring an installation."""

from msgspec.structs import replace

from angarium.connecting import Access
from angarium.operations.failures import operation
from angarium.operations.installation.examine import examine_running
from angarium.operations.installation.finding import Finding
from streams.observation.receivers_seen import shard_count


@operation
async def find_alerts(access: Access) -> list[Finding]:
    """All current problems, those of the installation first."""
    installation = replace(access.installation, shards=await shard_count(access.js, access.names))
    tenants = access.settings.tenants
    examined = await examine_running(access.js, installation, tenants, storage_needed_by=False)
    found = [each for each in examined if each.level != "ok"]
    return sorted(found, key=lambda each: each.ok)
