"""The nodes as a NATS micro service, so that `nats micro ls` and `nats micro stats angarium` list them.

By ADR-32, an instance answers PING, INFO and STATS on `$SRV.<verb>`, `$SRV.<verb>.<name>` and
`$SRV.<verb>.<name>.<id>`. It lists one endpoint, that of the control requests. It has no queue group, since
only the owner of a shard can answer for it.
"""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct, field

from actors.errors import Unavailable
from streams.control_requests.bounded_subscription import BoundedSubscription
from streams.control_requests.requests import ControlTotals
from streams.installation.topology import Names
from streams.nats.errors import NotPermitted
from streams.nats.inboxes import Inboxes
from streams.nats.jetstream import JetStream
from streams.nats.wire import Message, Wire

ANSWERS_AT_ONCE = 16
"""Answers under way at a time; further requests get none. Nodes are rarely listed, and clients can ask again:
15,000 requests at once, each with its own answer, blocked a node for 2 s."""

STATISTICS_TIMEOUT_S = 1.0
"""Time for a node's answer to the question which shards it refuses."""

DESCRIPTION = "Angarium, the webhook dispatcher on NATS JetStream"


class Identity(Struct, frozen=True, kw_only=True):
    """One node: `name` and `id` are subject tokens, `version` is semantic, `started_at` is wall time."""

    name: str
    id: str
    version: str
    started_at: float
    metadata: dict[str, str] = field(default_factory=dict)


class MicroService:
    """The service of one node. `subject` is that of its endpoint; `data` is added to its statistics.

    `inboxes` decides which reply subjects get an answer.
    """

    def __init__(
        self,
        wire: Wire,
        identity: Identity,
        subject: str,
        totals: ControlTotals,
        data: Callable[[], dict[str, Any]],
        inboxes: Inboxes | None = None,
    ) -> None:
        self._wire = wire
        self._identity = identity
        self._endpoint: dict[str, Any] = {"name": "ctl", "subject": subject, "queue_group": ""}
        self._totals = totals
        self._data = data
        self._inboxes = inboxes or Inboxes()
        self._subscription = BoundedSubscription(wire, self._endpoints())
        self._under_way: dict[asyncio.Task[None], None] = {}

    async def start(self) -> None:
        """Begin to list the node."""
        await self._subscription.start()

    async def stop(self) -> None:
        """Stop listing the node."""
        await self._subscription.stop()
        if self._under_way:
            await asyncio.wait(self._under_way)

    def _endpoints(self) -> list[tuple[str, Callable[[Message], None]]]:
        name, instance = self._identity.name, self._identity.id
        return [
            (subject, self._answering(answer))
            for verb, answer in (("PING", self._ping), ("INFO", self._info), ("STATS", self._stats))
            for subject in (f"$SRV.{verb}", f"$SRV.{verb}.{name}", _subject(verb, name, instance))
        ]

    def _answering(self, answer: Callable[[], dict[str, Any]]) -> Callable[[Message], None]:
        def on_message(message: Message) -> None:
            if len(self._under_way) < ANSWERS_AT_ONCE and self._inboxes.includes(message.reply):
                data = msgspec.json.encode(answer())
                task = asyncio.ensure_future(self._wire.publish(message.reply, data))
                self._under_way[task] = None
                task.add_done_callback(self._under_way.pop)

        return on_message

    def _ping(self) -> dict[str, Any]:
        return self._answer("ping_response")

    def _info(self) -> dict[str, Any]:
        endpoint = self._endpoint | {"metadata": {}}
        return self._answer("info_response") | {"description": DESCRIPTION, "endpoints": [endpoint]}

    def _stats(self) -> dict[str, Any]:
        """The statistics, with times in nanoseconds."""
        totals = self._totals
        started = datetime.fromtimestamp(self._identity.started_at, UTC).isoformat(timespec="milliseconds")
        endpoint = self._endpoint | {
            "num_requests": totals.requests,
            "num_errors": totals.errors,
            "last_error": totals.last_error,
            "processing_time": round(totals.busy_s * 1e9),
            "average_processing_time": round(totals.busy_s * 1e9 / max(1, totals.requests)),
            "data": self._data(),
        }
        return self._answer("stats_response") | {
            "started": started.replace("+00:00", "Z"),
            "endpoints": [endpoint],
        }

    def _answer(self, kind: str) -> dict[str, Any]:
        identity = self._identity
        return {
            "type": f"io.nats.micro.v1.{kind}",
            "name": identity.name,
            "id": identity.id,
            "version": identity.version,
            "metadata": identity.metadata,
        }


class _Endpoint(Struct):
    data: dict[str, Any] = {}


class _Statistics(Struct):
    endpoints: list[_Endpoint] = []


async def refused_shards(js: JetStream, names: Names, node: str) -> dict[int, str]:
    """The shards that a node refuses, and why, by its statistics; none if it is too busy to answer.

    Raises `NotPermitted`.
    """
    try:
        message = await js.request(_subject("STATS", names.prefix, node), b"", STATISTICS_TIMEOUT_S)
    except NotPermitted:
        raise
    except Unavailable:
        return {}
    refused: dict[int, str] = {}
    for endpoint in msgspec.json.decode(message.data, type=_Statistics).endpoints:
        refused.update({int(shard): why for shard, why in endpoint.data.get("refused", {}).items()})
    return refused


def _subject(verb: str, name: str, instance: str) -> str:
    return f"$SRV.{verb}.{name}.{instance}"
