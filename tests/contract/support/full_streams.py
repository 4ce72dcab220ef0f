"""An installation whose deliveries are soon full, and a receiver of each kind that accepts nothing."""

import asyncio

import msgspec
import pytest

from actors.machine.outcome import Answered, Failed, Outcome
from actors.ports import Attempt, BatchAttempt
from streams.installation.topology import Names
from streams.nats.answers import Refused, Stored
from streams.nats.jetstream import JetStream
from streams.nats.wire_names import EVENT_ID, MESSAGE_ID
from tests.support.installation import install

ROOM = 192 << 10
"""Some 90 events."""
EVENTS = 240
STREAM_FULL = 10077

DOWN, PAUSED, UNUSABLE, HEALTHY = "acme.down", "acme.paused", "acme.unusable", "acme.healthy"
CONFIGURATIONS = {
    DOWN: {"url": "https://example.com/", "retry": {"base_s": 3000.0, "cap_s": 3600.0}},
    PAUSED: {"url": "https://example.com/", "paused": True},
    UNUSABLE: {"url": 7},
    HEALTHY: {"url": "https://example.com/"},
}


class Sender:
    """One receiver takes what comes; the others are offline."""

    def __init__(self) -> None:
        self.delivered: list[str] = []

    async def send(self, attempt: Attempt | BatchAttempt) -> Outcome:
        if attempt.receiver != HEALTHY:
            return Failed(error="connect", detail="nobody is there", latency_ms=1.0)
        self.delivered += [event.id for event, _ in attempt.numbered]
        return Answered(status=200, latency_ms=1.0)


async def install_with_little_room(js: JetStream, prefix: str, monkeypatch: pytest.MonkeyPatch) -> Names:
    """An installation with little room for deliveries, and nodes that look after it all the time."""
    for interval in (
        "housekeeping.maintenance.ROUND_EVERY_S",
        "housekeeping.maintenance.HURRIED_ROUND_EVERY_S",
        "housekeeping.maintenance.DEPOSED_LEADER_MAX_S",
        "shard_snapshots.SNAPSHOT_EVERY_S",
    ):
        monkeypatch.setattr(f"angarium.node.{interval}", 0.05)
    for interval in ("UNACKED_MAX_S", "SWEEP_EVERY_S"):
        monkeypatch.setattr(f"actors.runtime.host.{interval}", 0.05)
    names = await install(js, prefix)
    info = await js.stream_info(names.deliveries)
    assert info is not None
    await js.stream_update(info.config | {"max_bytes": ROOM})
    for receiver, configuration in CONFIGURATIONS.items():
        await js.publish(names.receiver(receiver), msgspec.json.encode(configuration))
    return names


async def publish(js: JetStream, names: Names, receiver: str, id_: str) -> int:
    """Publish until it is accepted, as a producer does who is refused; returns how often that was.

    It has a message id: what was accepted, though no answer came in time, is not accepted again.
    """
    refused = 0
    while True:
        match await js.publish(
            names.publish_to(receiver), b"x" * 2000, {EVENT_ID: id_, MESSAGE_ID: f"{receiver}:{id_}"}
        ):
            case Stored():
                return refused
            case Refused(code=code):
                assert code == STREAM_FULL
                refused += 1
                await asyncio.sleep(0.02)
