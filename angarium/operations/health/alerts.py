"""Alerts: what `angarium doctor` would find unwell now, for those who watch an installation."""

from msgspec.structs import replace

from angarium.connecting import Access
from angarium.operations.failures import operation
from angarium.operations.health.examine import examine_running
from angarium.operations.health.finding import Finding
from streams.fleet.receivers_seen import shard_count


@operation
async def find_alerts(to: Access) -> list[Finding]:
    """All that is not well, problems of the installation first."""
    of = replace(to.of, shards=await shard_count(to.js, to.names))
    examined = await examine_running(to.js, of, storage_needed_by=False)
    found = [each for each in examined if each.level != "ok"]
    return sorted(found, key=lambda each: each.ok)
