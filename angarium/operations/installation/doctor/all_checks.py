"""All checks of `angarium doctor`, in the order of their dependencies."""

from collections.abc import Mapping

from msgspec.structs import replace

from actors.errors import Unavailable
from actors.tenant_settings import TenantSettings
from angarium import package_check
from angarium.access import Access, installation, keys_when_needed, open_jetstream
from angarium.operations.failures import operation
from angarium.operations.installation.doctor.filters import check_filters
from angarium.operations.installation.doctor.findings import Finding, if_permitted, ok, problem, warning
from angarium.operations.installation.doctor.nats_server import check_clock, check_max_payload
from angarium.operations.installation.doctor.nodes import check_nodes
from angarium.operations.installation.doctor.receivers import check_receivers
from angarium.operations.installation.doctor.routing import check_strays, check_unrouted
from angarium.operations.installation.doctor.shards import check_refused_shards
from angarium.operations.installation.doctor.storage import (
    check_dead_letter_room,
    check_room,
    check_timed_room,
)
from angarium.operations.installation.doctor.stored_secrets import check_secrets
from angarium.operations.installation.doctor.streams_and_buckets import (
    check_recreated,
    check_replicas,
    check_topology,
)
from angarium.settings import Settings, UnknownVariable, unknown_variables
from streams.installation.topology import Installation
from streams.nats.errors import ApiError, ConnectError, NotPermitted
from streams.nats.jetstream import JetStream
from streams.observation.receiver_snapshots import shard_count


async def check_everything(settings: Settings) -> list[Finding]:
    """Make all checks; it ends early if the next ones would make no sense."""
    findings = [problem("packages", sentence) for sentence in package_check.foreign_packages()]
    findings = findings or [ok("packages", "the packages actors and streams are Angarium's own")]
    findings += [_variable(each) for each in unknown_variables()]
    try:
        async with open_jetstream(settings, for_command=True) as js:
            findings.append(check_max_payload(js.wire.server_version, js.wire.max_payload))
            findings += await check_topology(js, installation(settings))
            if findings[-1].ok:
                findings += await check_running(js, installation(settings), settings.tenants)
                access = Access(js, settings, keys=keys_when_needed(settings))
                misconfigured = {each.receiver for each in findings if each.condition == "misconfigured"}
                named = {each for each in misconfigured if each is not None}
                findings += await if_permitted("secrets", check_secrets(access, named))
    except (ConnectError, NotPermitted) as error:
        findings.append(problem("nats", str(error)))
    except (Unavailable, ApiError) as error:
        text = f"nats-server stopped answering ({error})"
        findings.append(problem("nats", text, "check nats-server, then try again"))
    return findings


def _variable(unknown: UnknownVariable) -> Finding:
    """The finding about an unknown variable; one that seems to be meant for other programs is harmless."""
    return (warning if unknown.meant is None else problem)("settings", str(unknown))


@operation
async def installation_problems(access: Access) -> list[Finding]:
    """The findings that are not ok, without those about receivers."""
    installed = replace(access.installation, shards=await shard_count(access.js, access.names))
    tenants = access.settings.tenants
    found = await _check_installation(access.js, installed, tenants, as_operator=False)
    return [each for each in found if each.level != "ok"]


async def check_running(
    js: JetStream, installation: Installation, tenants: Mapping[str, TenantSettings]
) -> list[Finding]:
    """Check everything that changes at run time. Raises `Unavailable` and `ApiError`."""
    findings = await _check_installation(js, installation, tenants, as_operator=True)
    findings += await if_permitted("receivers", check_receivers(js, installation))
    return findings + await if_permitted("filters", check_filters(js, installation))


async def _check_installation(
    js: JetStream, installation: Installation, tenants: Mapping[str, TenantSettings], *, as_operator: bool
) -> list[Finding]:
    """Check all but the receivers.

    A check that our user may not make is a warning. `tenants`: the settings of single tenants.
    `as_operator` also finds which shard or receiver holds a stream, and which events are in no partition:
    only nodes and operators may read that.
    """
    streams = (installation.names.events, installation.names.deliveries, installation.names.journal)
    findings = [
        *await if_permitted("clock", check_clock(js, installation)),
        *await check_replicas(js, installation),
        *await if_permitted("streams", check_recreated(js, installation)),
        *await if_permitted("shards", check_refused_shards(js, installation)),
        *[await check_room(js, installation, name, name_holder=as_operator) for name in streams],
        await check_dead_letter_room(js, installation),
        *await check_timed_room(js, installation),
        *await if_permitted("nodes", check_nodes(js, installation)),
        *await if_permitted("tenants", check_unrouted(js, installation, tenants)),
    ]
    if as_operator:
        findings += await if_permitted("events", check_strays(js, installation))
    return findings
