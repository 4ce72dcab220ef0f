"""The checks of `angarium doctor`, a line each: what was checked, whether it is right, and the remedy."""

import time

from actors.errors import Unavailable, Unusable
from angarium import package_check, quantities
from angarium.connecting import installation, open_jetstream
from angarium.operations.health import sizing, unwell
from angarium.operations.health.finding import Finding, ill, warning, well
from angarium.settings import Settings, UnknownVariable, unknown_variables
from streams.fleet.installation_status import owners, recorded_losses, remade, seen_members, server_time
from streams.installation.setup import check
from streams.installation.topology import Installation
from streams.nats.errors import ApiError, ConnectError, NotPermitted, SetupError
from streams.nats.jetstream import JetStream
from streams.nats.retry import stream_info
from streams.purge import is_short

CLOCK_OFF_MAX_S = 2.0
"""Allowed clock error. Verifiers allow five minutes, so seconds are harmless; but they show that NTP is
off."""
LINES_SHOWN_MAX = 8


async def examine(settings: Settings) -> list[Finding]:
    """All checks, in the order of their dependencies; it ends early if the next ones would make no sense."""
    findings = [ill("packages", sentence) for sentence in package_check.foreign_packages()]
    findings = findings or [well("packages", "actors and streams are Angarium's own")]
    findings += [_variable(each) for each in unknown_variables()]
    try:
        async with open_jetstream(settings) as js:
            findings.append(well("nats", f"nats-server {js.wire.server_version}"))
            findings += await _topology(js, settings)
            if findings[-1].ok:
                findings += await examine_running(js, installation(settings))
    except (ConnectError, NotPermitted) as error:
        findings.append(ill("nats", str(error)))
    except (Unavailable, ApiError) as error:
        findings.append(ill("nats", f"it stopped answering ({error})", "check nats-server, then try again"))
    return findings


def _variable(unknown: UnknownVariable) -> Finding:
    """The finding about an unknown variable; one that seems to be meant for other programs is harmless."""
    return (warning if unknown.meant is None else ill)("settings", str(unknown))


async def _topology(js: JetStream, settings: Settings) -> list[Finding]:
    try:
        problems = await check(js, installation(settings))
    except SetupError as error:
        return [ill("topology", str(error))]
    if problems:
        return [ill("topology", str(problem)) for problem in problems]
    return [
        well("topology", f"all streams, buckets and consumers of {settings.prefix}, {settings.shards} shards")
    ]


async def examine_running(
    js: JetStream, of: Installation, *, storage_needed_by: bool = True
) -> list[Finding]:
    """The checks of everything that changes at run time. Raises NotPermitted, Unavailable and ApiError.

    `storage_needed_by` also finds which shard or receiver holds a stream, which only nodes and operators may
    read.
    """
    streams = (of.names.events, of.names.deliveries, of.names.journal)
    return [
        await _clock(js, of),
        *await _remade(js, of),
        *await _refused(js, of),
        *[await _room(js, of, name, storage_needed_by) for name in streams],
        await _letters(js, of),
        *await _fleet(js, of),
        *await unwell.receivers(js, of),
    ]


async def _clock(js: JetStream, of: Installation) -> Finding:
    before = time.time()
    server = await server_time(js, of.names.deliveries)
    off_s = max(before - server, server - time.time(), 0.0)
    if off_s > CLOCK_OFF_MAX_S:
        return ill("clock", f"this machine and the NATS server differ by {off_s:.1f} s", "run NTP on both")
    return well("clock", "this machine and the NATS server agree")


async def _remade(js: JetStream, of: Installation) -> list[Finding]:
    """The streams that are not the ones the shards know, so that shards are refused, or will be soon."""
    try:
        names = await remade(js, of.names, of.shards)
    except Unusable as error:
        return [ill("streams", str(error))]
    remedy = "restore the right one, or see Restore in docs/operating.md"
    return [ill("streams", f"{name} was recreated, or restored", remedy) for name in names]


async def _refused(js: JetStream, of: Installation) -> list[Finding]:
    """The shards whose streams have lost messages that were read from them, each reason once."""
    try:
        refused = await recorded_losses(js, of.names, of.shards)
    except Unusable as error:
        return [ill("shards", str(error))]
    shards: dict[str, list[int]] = {}
    for shard, refusal in refused.items():
        shards.setdefault(refusal.why.removesuffix("; see angarium doctor"), []).append(shard)
    remedy = "restore the stream, or accept the loss: angarium repair --accept-loss all"
    return [ill("shards", f"{_few(which)} refused: {why}", remedy) for why, which in shards.items()]


async def _room(js: JetStream, of: Installation, name: str, needed_by: bool) -> Finding:
    """Check the room of a stream. Nodes purge unneeded messages, so if it stays full, a shard holds it."""
    info = await stream_info(js, name)
    text = f"{name} holds {quantities.bytes_text(info.bytes)}"
    if info.max_bytes > 0:
        text += f" of {quantities.bytes_text(info.max_bytes)}"
    if info.messages and needed_by:
        text += f"; {await sizing.holder(js, of, info)}"
    if is_short(info):
        return ill("storage", text, "find out why they are not delivered, or raise max_bytes of the stream")
    return well("storage", text)


async def _letters(js: JetStream, of: Installation) -> Finding:
    """Check the room for dead letters: only operators drop them, and without room none can be stored."""
    info = await stream_info(js, of.names.dead_letters)
    text = f"{info.name} holds {info.messages} letters, {quantities.bytes_text(info.bytes)}"
    if is_short(info):
        return ill("storage", text, "redrive or drop them (angarium dead), or raise max_bytes of the stream")
    return well("storage", text)


async def _fleet(js: JetStream, of: Installation) -> list[Finding]:
    members, strange = await seen_members(js, of.names)
    findings = [ill("nodes", sentence) for sentence in strange]
    if not members:
        return [*findings, ill("nodes", "none is alive", "start one with angarium node")]
    findings.append(well("nodes", ", ".join(f"{each.node} ({each.version})" for each in members)))
    alive = {each.node for each in members}
    try:
        holders = await owners(js, of.names, of.shards)
    except Unusable as error:
        return [*findings, ill("shards", str(error))]
    orphans = [shard for shard, owner in enumerate(holders) if owner is None or owner.node not in alive]
    if not orphans:
        return [*findings, well("shards", f"all {of.shards} are owned")]
    text = f"{len(orphans)} of {of.shards} have no living owner ({_few(orphans)})"
    remedy = "wait some seconds and try again; then look for shard.refused in the nodes' logs"
    return [*findings, ill("shards", text, remedy)]


def _few(shards: list[int]) -> str:
    return ", ".join(map(str, shards[:LINES_SHOWN_MAX])) + (" …" if len(shards) > LINES_SHOWN_MAX else "")
