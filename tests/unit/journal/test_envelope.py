"""The envelope of a flush: what is written is read; newer or foreign envelopes are refused."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.errors import NewerVersion
from actors.machine.bucket import Unclean
from actors.machine.facts import AnyFact, Claimed, Delivered, EventDropped, Parked
from actors.machine.numbering import Numbered
from streams.journal.envelope import Flush, decode_flush, encode_fact, encode_flush, message_id
from streams.journal.routing_progress import RoutingProgress
from streams.nats.errors import NotOurs

WHERE = "message 17 of ANGARIUM_JOURNAL"


def written(*facts: AnyFact, unclean: Unclean | None = None) -> bytes:
    return encode_flush(
        node="a", epoch=5, flush=2, floor=10, routing=RoutingProgress(routed=9), at=1.5, unclean=unclean,
        facts=[encode_fact(fact) for fact in facts],
    )  # fmt: skip


def test_a_written_flush_is_read_back_as_it_was() -> None:
    facts = (
        Delivered(
            receiver="acme.billing",
            events=(Numbered(sequence=1, position=9, id="ü", stored_at=1_800_000_000.123456),),
            at=1_800_000_000.25,
            attempt=1,
            status=200,
        ),
        Parked(receiver="acme.crm", at=2.0),
        Claimed(epoch=5, at=1.0, clean=False, position=9, unclean_epoch=5),
    )
    unclean = Unclean(4, 8, 1_800_000_000.5)
    assert decode_flush(written(*facts, unclean=unclean), WHERE) == Flush(
        v=4, node="a", epoch=5, flush=2, floor=10, routed=9, at=1.5, unclean=unclean, facts=facts
    )


@given(st.floats(min_value=0, max_value=4e9))
def test_instants_are_read_to_the_last_bit(at: float) -> None:
    [fact] = decode_flush(written(Parked(receiver="a.b", at=at)), WHERE).facts
    assert fact == Parked(receiver="a.b", at=at)


def test_the_flush_is_the_json_that_other_programs_read() -> None:
    flush = msgspec.json.decode(written(EventDropped(receiver="acme.billing", position=7)))
    assert flush == {
        "v": 4,
        "node": "a",
        "epoch": 5,
        "flush": 2,
        "floor": 10,
        "routed": 9,
        "at": 1.5,
        "facts": [{"fact": "repeated", "receiver": "acme.billing", "position": 7}],
    }
    assert list(flush) == ["v", "node", "epoch", "flush", "floor", "routed", "at", "facts"]


def test_a_flush_names_parked_tenants_if_there_are_any() -> None:
    data = encode_flush(
        node="a", epoch=5, flush=2, floor=10,
        routing=RoutingProgress(routed=9, parked_tenants={"acme": 3}), at=1.5, unclean=None, facts=[],
    )  # fmt: skip
    assert msgspec.json.decode(data)["tenants"] == {"acme": 3}
    assert decode_flush(data, WHERE).parked_tenants == {"acme": 3}


def test_members_that_newer_versions_add_to_a_fact_are_ignored() -> None:
    data = written(EventDropped(receiver="acme.billing", position=7)).replace(
        b'"position":7', b'"position":7,"x":1'
    )
    assert decode_flush(data, WHERE).facts == (EventDropped(receiver="acme.billing", position=7),)


def test_a_newer_envelope_is_refused_with_any_content() -> None:
    with pytest.raises(
        NewerVersion, match=f"{WHERE} has version 6, this Angarium knows 5: upgrade this node"
    ):
        decode_flush(b'{"v": 6, "facts": {"packed": true}}', WHERE)
    with pytest.raises(NewerVersion, match="version 6"):
        decode_flush(written().replace(b'"v":4', b'"v":6'), WHERE)


def test_an_unknown_kind_of_fact_is_newer() -> None:
    data = written(Parked(receiver="a.b", at=1.0), EventDropped(receiver="a.b", position=1))
    with pytest.raises(NewerVersion, match=f"{WHERE} holds a fact of the unknown kind 'melted'"):
        decode_flush(data.replace(b'"repeated"', b'"melted"'), WHERE)


@pytest.mark.parametrize("data", [
    b"", b"hello", b"[]", b"{}", b'{"v": 3}', b'{"v": "3"}', written()[:-1], b"\xff\xfe",
    written(EventDropped(receiver="a.b", position=1)).replace(b'"position":1', b'"position":"1"'),
    written(EventDropped(receiver="a.b", position=1)).replace(b'"fact":"repeated",', b""),
])  # fmt: skip
def test_a_message_that_is_not_a_flush_is_not_ours(data: bytes) -> None:
    with pytest.raises(NotOurs, match=f"{WHERE} was not written by Angarium"):
        decode_flush(data, WHERE)


def test_a_message_id_names_one_flush() -> None:
    ids = [message_id(shard, epoch, flush) for shard in (1, 11) for epoch in (1, 11) for flush in (1, 11)]
    assert len(dict.fromkeys(ids)) == len(ids)
