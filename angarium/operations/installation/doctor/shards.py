"""Checks that a live node owns each shard, and that no shard is refused."""

from collections.abc import Sequence

from actors.errors import Unusable
from angarium.operations.installation.doctor.findings import Finding, few, ok, problem
from streams.fleet.members import Member
from streams.installation.topology import Installation
from streams.nats.jetstream import JetStream
from streams.observation.installation_status import recorded_losses, unowned_shards


async def check_refused_shards(js: JetStream, installation: Installation) -> list[Finding]:
    """Find the shards whose streams have lost messages that were read from them, each reason once."""
    try:
        refused = await recorded_losses(js, installation.names, installation.shards)
    except Unusable as error:
        return [problem("shards", str(error))]
    shards: dict[str, list[int]] = {}
    for shard, refusal in refused.items():
        shards.setdefault(refusal.why.removesuffix("; see angarium doctor"), []).append(shard)
    remedy, command = "restore the stream, or accept the loss", "angarium repair --accept-loss all"
    return [
        problem("shards", f"shards are refused ({few(which)}): {why}", remedy, command)
        for why, which in shards.items()
    ]


async def check_owners(js: JetStream, installation: Installation, members: Sequence[Member]) -> list[Finding]:
    """Check that each shard has an owner among the live nodes."""
    try:
        unowned = await unowned_shards(js, installation.names, installation.shards, members)
    except Unusable as error:
        return [problem("shards", str(error))]
    if not unowned:
        return [ok("shards", f"live nodes own all {installation.shards} shards")]
    text = f"no live node owns {len(unowned)} of {installation.shards} shards ({few(unowned)})"
    remedy = "wait some seconds and try again; then look for shard.refused in the nodes' logs"
    return [problem("shards", text, remedy)]
