"""The checks of `angarium doctor`, one line each: the subject, the verdict, and the remedy."""

import math
import time
from collections.abc import Awaitable, Mapping, Sequence

from msgspec.structs import replace

from actors.errors import Unavailable, Unusable
from actors.tenant_settings import TenantSettings
from angarium import package_check, quantities
from angarium.access import Access, installation, keys_when_needed, open_jetstream
from angarium.operations.failures import operation
from angarium.operations.installation import sizing
from angarium.operations.installation.doctor.filter_findings import filter_findings
from angarium.operations.installation.doctor.finding import Finding, few, ok, problem, warning
from angarium.operations.installation.doctor.routing_findings import stray_findings, unrouted_findings
from angarium.operations.installation.doctor.sealing_findings import sealing_findings
from angarium.operations.installation.doctor.unhealthy_findings import unhealthy_findings
from angarium.operations.installation.fleet import live_nodes
from angarium.settings import Settings, UnknownVariable, unknown_variables
from streams.clock import server_time
from streams.fleet.live_members import live_members
from streams.fleet.members import Member
from streams.fleet.placement import can_drain
from streams.installation.requirements import Mismatch, MissingStreams
from streams.installation.setup import check
from streams.installation.topology import Installation
from streams.journal.journal import PAYLOAD_MIN
from streams.nats.errors import ApiError, ConnectError, NotPermitted, SetupError
from streams.nats.jetstream import JetStream
from streams.nats.retry import stream_info
from streams.observation.installation_status import (
    leaderless_streams,
    recorded_losses,
    recreated,
    servers_behind,
    unowned_shards,
)
from streams.observation.receiver_snapshots import shard_count
from streams.storage.purge import is_short

CLOCK_OFF_MAX_S = 2.0
"""Allowed clock error. Verifiers allow five minutes, so seconds are harmless; but they show that NTP is
off."""
LEADERLESS_REMEDY = "start the nats-servers that have their replicas; nats stream report shows them"
ROOM_REMEDY = "find out why they are not delivered, or raise max_bytes of the stream"
UNROUTED_REMEDY = (
    "find out what holds them; when it is almost full, the oldest events of the tenant with the most waiting "
    "bytes become dead letters (evicted). Raise that tenant's rate, or max_bytes of the stream"
)


async def examine(settings: Settings) -> list[Finding]:
    """All checks, in the order of their dependencies; it ends early if the next ones would make no sense."""
    findings = [problem("packages", sentence) for sentence in package_check.foreign_packages()]
    findings = findings or [ok("packages", "actors and streams are Angarium's own")]
    findings += [_variable(each) for each in unknown_variables()]
    try:
        async with open_jetstream(settings, for_command=True) as js:
            findings.append(nats_finding(js.wire.server_version, js.wire.max_payload))
            findings += await _topology(js, settings)
            if findings[-1].ok:
                findings += await examine_running(js, installation(settings), settings.tenants)
                access = Access(js, settings, keys=keys_when_needed(settings))
                misconfigured = {each.receiver for each in findings if each.ailment == "misconfigured"}
                named = {each for each in misconfigured if each is not None}
                findings += await if_permitted("secrets", sealing_findings(access, named))
    except (ConnectError, NotPermitted) as error:
        findings.append(problem("nats", str(error)))
    except (Unavailable, ApiError) as error:
        findings.append(
            problem("nats", f"it stopped answering ({error})", "check nats-server, then try again")
        )
    return findings


@operation
async def problems(access: Access) -> list[Finding]:
    """The findings that are not ok, without those about receivers."""
    installed = replace(access.installation, shards=await shard_count(access.js, access.names))
    tenants = access.settings.tenants
    examined = await _examine_installation(access.js, installed, tenants, storage_needed_by=False)
    return [each for each in examined if each.level != "ok"]


def _variable(unknown: UnknownVariable) -> Finding:
    """The finding about an unknown variable; one that seems to be meant for other programs is harmless."""
    return (warning if unknown.meant is None else problem)("settings", str(unknown))


def nats_finding(version: str, max_payload: int) -> Finding:
    """Check that the server takes messages as large as the record of the largest batch."""
    if max_payload < PAYLOAD_MIN:
        text = f"nats-server {version} has a max_payload of {quantities.bytes_text(max_payload)}"
        remedy = f"for batches it needs {quantities.bytes_text(PAYLOAD_MIN)}; the default is 1 MiB"
        return problem("nats", text, remedy)
    return ok("nats", f"nats-server {version}")


async def _topology(js: JetStream, settings: Settings) -> list[Finding]:
    try:
        problems = await check(js, installation(settings))
    except SetupError as error:
        return [problem("topology", str(error))]
    except Unavailable:
        leaderless = await leaderless_streams(js, installation(settings))
        if not leaderless:
            raise
        return [problem("streams", f"no leader: {few(leaderless)}", LEADERLESS_REMEDY)]
    if problems:
        return [_topology_problem(each) for each in problems]
    return [ok("topology", f"all streams and buckets of {settings.prefix}, {settings.shards} shards")]


def _topology_problem(found: Mismatch | MissingStreams) -> Finding:
    match found:
        case MissingStreams():
            return problem("topology", found.text, found.remedy)
        case Mismatch():
            return problem("topology", str(found))


async def examine_running(
    js: JetStream, installation: Installation, tenants: Mapping[str, TenantSettings]
) -> list[Finding]:
    """The checks of everything that changes at run time. Raises Unavailable and ApiError."""
    findings = await _examine_installation(js, installation, tenants, storage_needed_by=True)
    findings += await if_permitted("receivers", unhealthy_findings(js, installation))
    return findings + await if_permitted("filters", filter_findings(js, installation))


async def _examine_installation(
    js: JetStream,
    installation: Installation,
    tenants: Mapping[str, TenantSettings],
    *,
    storage_needed_by: bool,
) -> list[Finding]:
    """The checks of all but the receivers.

    A check that our user may not make is a warning. `tenants`: the settings of single tenants.
    `storage_needed_by` also finds which shard or receiver holds a stream, and which events are in no
    partition, which only nodes and operators may read.
    """
    streams = (installation.names.events, installation.names.deliveries, installation.names.journal)
    findings = [
        *await if_permitted("clock", _clock(js, installation)),
        *await _behind(js, installation),
        *await if_permitted("streams", _recreated(js, installation)),
        *await if_permitted("shards", _refused(js, installation)),
        *[await room(js, installation, name, storage_needed_by) for name in streams],
        await _letters(js, installation),
        *await later_findings(js, installation),
        *await if_permitted("nodes", _fleet(js, installation)),
        *await if_permitted("tenants", unrouted_findings(js, installation, tenants)),
    ]
    if storage_needed_by:
        findings += await if_permitted("events", stray_findings(js, installation))
    return findings


async def if_permitted(subject: str, check: Awaitable[list[Finding]]) -> list[Finding]:
    """The findings of a check, or a warning that our user may not make it."""
    try:
        return await check
    except NotPermitted as error:
        return [warning(subject, f"not checked: {error}")]


async def _clock(js: JetStream, installation: Installation) -> list[Finding]:
    before = time.time()
    server = await server_time(js, installation.names.deliveries)
    off_s = max(before - server, server - time.time(), 0.0)
    if off_s > CLOCK_OFF_MAX_S:
        text = f"this machine and the NATS server differ by {off_s:.1f} s"
        return [problem("clock", text, "run NTP on both")]
    return [ok("clock", "this machine and the NATS server agree")]


async def _behind(js: JetStream, installation: Installation) -> list[Finding]:
    """The servers that have not caught up, so that a stream would have no leader without another one."""
    found = await servers_behind(js, installation)
    remedy = "start it if it is down, and stop no other server before it has caught up"
    return [
        warning("servers", f"{server} has not caught up with {few(behind)}", remedy)
        for server, behind in found.items()
    ]


async def _recreated(js: JetStream, installation: Installation) -> list[Finding]:
    """The streams that are not the ones the shards know, so that shards are refused, or will be soon."""
    try:
        names = await recreated(js, installation.names, installation.shards)
    except Unusable as error:
        return [problem("streams", str(error))]
    remedy = "restore the right one, or see Restore in docs/operating.md"
    return [problem("streams", f"{name} was recreated, or restored", remedy) for name in names]


async def _refused(js: JetStream, installation: Installation) -> list[Finding]:
    """The shards whose streams have lost messages that were read from them, each reason once."""
    try:
        refused = await recorded_losses(js, installation.names, installation.shards)
    except Unusable as error:
        return [problem("shards", str(error))]
    shards: dict[str, list[int]] = {}
    for shard, refusal in refused.items():
        shards.setdefault(refusal.why.removesuffix("; see angarium doctor"), []).append(shard)
    remedy, command = "restore the stream, or accept the loss", "angarium repair --accept-loss all"
    return [
        problem("shards", f"{few(which)} refused: {why}", remedy, command) for why, which in shards.items()
    ]


async def room(js: JetStream, installation: Installation, name: str, needed_by: bool) -> Finding:
    """Check the room of a stream. Nodes purge unneeded messages, so if it stays full, a shard holds it."""
    info = await stream_info(js, name)
    text = f"{name} holds {quantities.bytes_text(info.bytes)}"
    if info.max_bytes > 0:
        text += f" of {quantities.bytes_text(info.max_bytes)}"
    if info.messages and needed_by:
        text += f"; {await sizing.holder(js, installation, info)}"
    if is_short(info):
        return problem("storage", text, UNROUTED_REMEDY if name == installation.names.events else ROOM_REMEDY)
    return ok("storage", text)


async def _letters(js: JetStream, installation: Installation) -> Finding:
    """Check the room for dead letters: only operators drop them, and without room none can be stored."""
    info = await stream_info(js, installation.names.dead_letters)
    letters = quantities.count_text(info.messages, "letter")
    text = f"{info.name} holds {letters}, {quantities.bytes_text(info.bytes)}"
    if is_short(info):
        return problem(
            "storage", text, "redrive or drop some, or raise max_bytes of the stream", "angarium dead"
        )
    return ok("storage", text)


async def later_findings(js: JetStream, installation: Installation) -> list[Finding]:
    """Check the room for events that wait for their time, and that the events take them when they are due.

    Only time and operators free that room.
    """
    info = await stream_info(js, installation.names.later)
    text = f"{info.name} holds {quantities.bytes_text(info.bytes)} of events that wait for their time"
    if is_short(info):
        remedy = "cancel some, or raise max_bytes of the stream"
        found = [problem("storage", text, remedy, "angarium later")]
    else:
        found = [ok("storage", text)]
    events = await stream_info(js, installation.names.events)
    sizes = [each.config.get("max_msg_size", -1) for each in (events, info)]
    taken, stored = (math.inf if size < 0 else size for size in sizes)
    if taken < stored:
        text = f"{events.name} may refuse events that are due: {info.name} has taken larger ones"
        remedy = "raise max_msg_size of the first to that of the second"
        found.append(problem("storage", text, remedy, "nats stream edit"))
    return found


async def _fleet(js: JetStream, installation: Installation) -> list[Finding]:
    members, problems = await live_members(js, installation.names)
    findings = [problem("nodes", sentence) for sentence in problems]
    if not members:
        return [*findings, problem("nodes", "none is alive", "start one", "angarium node")]
    findings.append(ok("nodes", ", ".join(f"{each.node} ({each.version})" for each in members)))
    findings += [
        problem(
            "nodes", f"{each.node} can connect to no host, and delivers nothing until a probe succeeds",
            "check its network, its firewall and its DNS; the others take its receivers once it is drained",
            f"angarium fleet drain {each.node}",
        )
        for each in members if each.outage
    ]  # fmt: skip
    findings += _differences(members)
    try:
        unowned = await unowned_shards(js, installation.names, installation.shards, members)
    except Unusable as error:
        return [*findings, problem("shards", str(error))]
    if not unowned:
        return [*findings, ok("shards", f"all {installation.shards} are owned")]
    text = f"no live node owns {len(unowned)} of {installation.shards} ({few(unowned)})"
    remedy = "wait some seconds and try again; then look for shard.refused in the nodes' logs"
    return [*findings, problem("shards", text, remedy)]


def _differences(members: Sequence[Member]) -> list[Finding]:
    """The nodes that are left out on purpose, and versions that should not stay side by side."""
    left_out = can_drain(live_nodes(members)) and not all(each.draining for each in members)
    meaning = "and gets no shards" if left_out else "but gets shards: no other node can take them"
    findings = [
        warning(
            "nodes", f"{each.node} is drained, {meaning}", "once its maintenance is over, resume it",
            f"angarium fleet resume {each.node}",
        )
        for each in members
        if each.draining
    ]  # fmt: skip
    if len(versions := sorted({each.version for each in members})) > 1:
        text = f"they have different versions: {', '.join(versions)}"
        findings.append(warning("nodes", text, "finish the upgrade, if none is under way"))
    return findings
