"""Alerts: the problems that `angarium doctor` would find now, for monitoring an installation."""

from msgspec.structs import replace

from angarium.connecting import Access
from angarium.operations.failures import operation
from angarium.operations.health.examine import examine_running
from angarium.operations.health.finding import Finding
from streams.fleet.receivers_seen import shard_count


@operation
async def find_alerts(to: Access) -> list[Finding]:
    """All present problems, those of the installation first."""
    of = replace(to.of, shards=await shard_count(to.js, to.names))
    examined = await examine_running(to.js, of, storage_needed_by=False)
    found = [each for each in examined if each.level != "ok"]
    return sorted(found, key=lambda each: each.ok)
