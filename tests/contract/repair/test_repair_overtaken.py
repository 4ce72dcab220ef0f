"""A repair that another process overtook: it changes nothing of the shard any more."""

from typing import Any

import msgspec
import pytest

from streams.installation.topology import Names
from streams.journal.claim import Owner
from streams.journal.recovery import recover
from streams.nats.errors import RepairError
from streams.nats.jetstream import JetStream
from streams.repair import acceptance
from streams.repair.acceptance import accept_loss
from streams.repair.damage import examine
from streams.repair.preconditions import free_or_of
from tests.contract.shards import SHARD, Clocks, lose_events


async def test_the_consumer_of_the_events_is_its_new_owners(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No journal guards it: set back to where an earlier loss ended, it would leave events out."""
    await lose_events(js, names)
    resets: list[int | None] = []
    reset = js.consumer_reset

    async def recover_slowly(*args: Any, **members: Any) -> Any:
        recovered = await recover(*args, **members)
        owner = msgspec.json.encode(Owner(node="b", at=0.0))
        await js.publish(names.owner(SHARD), owner)
        return recovered

    async def note(stream: str, consumer: str, sequence: int | None = None) -> int:
        resets.append(sequence)
        return await reset(stream, consumer, sequence)

    monkeypatch.setattr(js, "consumer_reset", note)
    agreed = await examine(js, names, SHARD)
    with monkeypatch.context() as overtaken:
        overtaken.setattr(acceptance, "recover", recover_slowly)
        with pytest.raises(RepairError, match="was overtaken: another process claimed it"):
            await accept_loss(
                js, names, SHARD, "repair", Clocks(), may_claim=free_or_of(frozenset()), agreed=agreed
            )
    assert resets == []
    may_claim = free_or_of(frozenset({"b"}))
    await accept_loss(js, names, SHARD, "repair", Clocks(), may_claim=may_claim, agreed=agreed)
    assert resets == [1]
