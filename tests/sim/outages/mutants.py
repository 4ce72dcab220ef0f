"""Rules about the outage of a node itself, each taken out by itself."""

import asyncio

from actors.configuration.policy import Policy
from actors.machine.outcome import Failed
from actors.machine.state import State
from actors.runtime.posting_bounds import PostingBounds
from angarium.delivery.connections.down_hosts import DownHosts
from angarium.delivery.own_outage.evidence import Evidence
from angarium.delivery.own_outage.outage_detector import OutageDetector
from tests.sim.mutants.mutant import Mutant
from tests.sim.outages import scenarios

_attribute = OutageDetector.attribute


async def _attribute_later(detector: OutageDetector, receiver: str, policy: Policy, failed: Failed) -> Failed:
    asyncio.get_running_loop().create_task(_attribute(detector, receiver, policy, failed))
    return failed


OUTAGE_MUTANTS = [
    Mutant("outage-verdict", "a failure without contact waits until it is known whose it is",
           ((OutageDetector, "attribute", _attribute_later),),
           scenarios.node_loses_its_network),
    Mutant("outage-attempts", "a node that reaches no host starts no attempt",
           ((PostingBounds, "may_reach", property(lambda bounds: True)),),
           scenarios.node_loses_its_network),
    Mutant("outage-age", "the time of an outage is no failing time of a receiver",
           ((State, "may_age", property(lambda state: False)),),
           scenarios.owner_dies_in_its_outage),
    Mutant("outage-witnesses", "hosts that were reached before are asked first",
           ((Evidence, "witnesses", lambda evidence, now: []),
            (Evidence, "in_turn", lambda evidence, now: [])),
           scenarios.hostile_tenants_have_hosts_that_die),
    Mutant("down-host-shared", "receivers of a host that is down try it in turn",
           ((PostingBounds, "may_try_host", property(lambda bounds: True)),),
           scenarios.receivers_share_a_host_that_is_down),
    Mutant("down-host-turns", "attempts go on at a host that is down, and all go on once it is up",
           ((DownHosts, "on_turn", lambda hosts, wake: None),),
           scenarios.receivers_share_a_host_that_is_down),
]  # fmt: skip
