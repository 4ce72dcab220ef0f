"""The live nodes as seen from outside: by commands, and by a node before it becomes a member."""

import math

import msgspec

from actors.errors import Unusable
from streams.clock import server_time
from streams.fleet import members
from streams.fleet.lease import LEASE_MARGIN_S
from streams.fleet.members import Member
from streams.installation.topology import Names
from streams.nats.jetstream import JetStream
from streams.versions import read_versioned

_member = msgspec.json.Decoder(Member)


async def live_members(js: JetStream, names: Names) -> tuple[list[Member], list[str]]:
    """The live nodes, by name, and a sentence for each key that cannot be read or is not renewed.

    A key that is not renewed expires, unless the server can no longer store anything.
    """
    now = await server_time(js, names.nodes)
    found: dict[str, Member] = {}
    problems: list[str] = []
    after, pending = 0, 1
    while pending:
        page = await js.read(names.nodes, names.node("*"), after + 1)
        for message in page.messages:
            after = message.position
            if message.data:
                try:
                    member = read_versioned(_member, message.data, members.VERSION, message.subject)
                except Unusable as error:
                    problems.append(str(error))
                    continue
                if member.node != names.node_of_heartbeat(message.subject):
                    problems.append(f"{message.subject} names another node: delete it, and see who wrote it")
                else:
                    silent_s = now - message.stored_at
                    if silent_s > (member.ttl_s or math.inf) + LEASE_MARGIN_S:
                        problems.append(_silent(member.node, silent_s))
                    else:
                        found[member.node] = member
        pending = page.pending
    return [found[node] for node in sorted(found)], problems


def _silent(node: str, silent_s: float) -> str:
    where = "check its log, and the disk of nats-server"
    return f"{node} has sent no heartbeat for {silent_s:.0f} s: {where}"
