"""Checks that the streams and buckets exist with their settings, have leaders, and were not recreated."""

from typing import assert_never

from actors.errors import Unavailable, Unusable
from angarium.operations.installation.doctor.findings import Finding, few, ok, problem, warning
from streams.installation.requirements import Mismatch, MissingStreams
from streams.installation.setup import check
from streams.installation.topology import Installation
from streams.nats.errors import SetupError
from streams.nats.jetstream import JetStream
from streams.observation.installation_status import leaderless_streams, recreated, servers_behind

LEADERLESS_REMEDY = "start the nats-servers that have their replicas; nats stream report shows them"


async def check_topology(js: JetStream, installation: Installation) -> list[Finding]:
    """Check all streams and buckets against what Angarium requires. Raises `Unavailable` and `ApiError`."""
    try:
        problems = await check(js, installation)
    except SetupError as error:
        return [problem("topology", str(error))]
    except Unavailable:
        leaderless = await leaderless_streams(js, installation)
        if not leaderless:
            raise
        return [problem("streams", f"these have no leader: {few(leaderless)}", LEADERLESS_REMEDY)]
    if problems:
        return [_topology_problem(each) for each in problems]
    text = f"all streams and buckets of {installation.names.prefix} exist, for {installation.shards} shards"
    return [ok("topology", text)]


def _topology_problem(found: Mismatch | MissingStreams) -> Finding:
    match found:
        case MissingStreams():
            return problem("topology", found.text, found.remedy)
        case Mismatch():
            return problem("topology", str(found))
        case never:
            assert_never(never)


async def check_replicas(js: JetStream, installation: Installation) -> list[Finding]:
    """Find the servers without which a stream would have no leader, since they have not caught up."""
    found = await servers_behind(js, installation)
    remedy = "start it if it is down, and stop no other server before it has caught up"
    return [
        warning("servers", f"{server} has not caught up with {few(behind)}", remedy)
        for server, behind in found.items()
    ]


async def check_recreated(js: JetStream, installation: Installation) -> list[Finding]:
    """Find the streams that are not the ones the shards know: shards are refused, or will be soon."""
    try:
        names = await recreated(js, installation.names, installation.shards)
    except Unusable as error:
        return [problem("streams", str(error))]
    remedy = "restore the right one, or see Restore in docs/operating.md"
    return [problem("streams", f"{name} was recreated, or restored", remedy) for name in names]
