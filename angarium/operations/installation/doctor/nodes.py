"""Checks which nodes are alive, and whether some are drained or have different versions."""

from collections.abc import Sequence

from angarium.operations.installation.doctor.findings import Finding, ok, problem, warning
from angarium.operations.installation.doctor.shards import check_owners
from angarium.operations.installation.fleet import live_nodes
from streams.fleet.live_members import live_members
from streams.fleet.members import Member
from streams.fleet.placement import can_drain
from streams.installation.topology import Installation
from streams.nats.jetstream import JetStream


async def check_nodes(js: JetStream, installation: Installation) -> list[Finding]:
    """Check which nodes are alive, and whether they own all shards."""
    members, problems = await live_members(js, installation.names)
    findings = [problem("nodes", sentence) for sentence in problems]
    if not members:
        return [*findings, problem("nodes", "no node is alive", "start one", "angarium node")]
    alive = ", ".join(f"{each.node} ({each.version})" for each in members)
    findings.append(ok("nodes", f"live nodes: {alive}"))
    findings += [
        problem(
            "nodes", f"{each.node} can connect to no host, and delivers nothing until a probe succeeds",
            "check its network, its firewall and its DNS; the others take its receivers once it is drained",
            f"angarium fleet drain {each.node}",
        )
        for each in members
        if each.outage
    ]  # fmt: skip
    findings += _differences(members)
    return findings + await check_owners(js, installation, members)


def _differences(members: Sequence[Member]) -> list[Finding]:
    """The nodes that are left out on purpose, and versions that should not stay side by side."""
    left_out = can_drain(live_nodes(members)) and not all(each.draining for each in members)
    meaning = "and gets no shards" if left_out else "but gets shards: no other node can take them"
    findings = [
        warning(
            "nodes", f"{each.node} is drained, {meaning}", "resume it after its maintenance",
            f"angarium fleet resume {each.node}",
        )
        for each in members
        if each.draining
    ]  # fmt: skip
    if len(versions := sorted({each.version for each in members})) > 1:
        text = f"the nodes have different versions: {', '.join(versions)}"
        findings.append(warning("nodes", text, "finish the upgrade, if none is under way"))
    return findings
