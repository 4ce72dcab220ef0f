"""Headers of a message; both ways to read a message make the same event of it."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from actors.machine.event import Event
from streams.nats.answers import StoredMessage
from streams.reading.messages import event_of, receiver_problem, stored_event

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def read(headers: dict[str, str] | None, body: bytes = b"{}") -> Event:
    return event_of(7, 1700000000.25, headers, body)


def why(name: str, value: str) -> str:
    """The complaint about the header; the rest of the event is as without the header."""
    event = read({name: value, "Nats-Msg-Id": "a"})
    assert structs.replace(event, malformed="") == read({"Nats-Msg-Id": "a"})
    return event.malformed


def test_a_bare_message_has_every_default() -> None:
    event = Event(position=7, id="evt_7_1700000000250", stored_at=1700000000.25, body=b"\xff\x00")
    assert read(None, b"\xff\x00") == event
    assert read({}, b"\xff\x00") == event
    assert read({"Some-Header": "x", "Nats-Pin-Id": "y"}, b"\xff\x00") == event


def test_types_as_long_as_a_message_are_refused_and_not_kept() -> None:
    tracemalloc.start()
    try:
        for number in range(64):
            assert "200 characters at most" in why("Angarium-Type", f"{number}.{'x' * 200_000}")
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()


def test_every_header_has_its_place() -> None:
    event = read({
        "Angarium-Id": "order:1",
        "Nats-Msg-Id": "ignored",
        "Angarium-Type": "order.created",
        "Angarium-Source": "17",
        "Angarium-Region": "eu-1",
        "Content-Type": "text/plain; charset=utf-8",
        "traceparent": TRACE,
        "tracestate": "congo=t61rcWkgMzE",
    })  # fmt: skip
    assert event == Event(
        position=7, id="order:1", stored_at=1700000000.25, body=b"{}", type="order.created", source=17,
        content_type="text/plain; charset=utf-8", traceparent=TRACE, tracestate="congo=t61rcWkgMzE",
        region="eu-1",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"Nats-Msg-Id": "a"}, "a"),
        ({"Nats-Msg-Id": "a", "Angarium-Id": "b"}, "b"),
        ({"Nats-Msg-Id": "a", "Angarium-Id": ""}, "a"),
        ({"Nats-Msg-Id": "", "Angarium-Id": ""}, "evt_7_1700000000250"),
        ({"nats-msg-id": "a"}, "evt_7_1700000000250"),
    ],
)
def test_the_id_is_the_first_that_was_given(headers: dict[str, str], expected: str) -> None:
    assert read(headers).id == expected


def test_a_malformed_id_is_hashed_and_always_the_same() -> None:
    hashed = read({"Nats-Msg-Id": "a b"}).id
    assert hashed.startswith("h_")
    assert read({"Angarium-Id": "a b"}).id == hashed
    assert stored_event(StoredMessage("s", 9, 2.0, {"Nats-Msg-Id": "a b"}, b"")).id == hashed


def test_an_event_that_is_sent_again_has_no_source() -> None:
    event = read({"Angarium-Again": "r-1", "Angarium-Source": "17"})
    assert (event.again, event.source) == ("r-1", 0)


@pytest.mark.parametrize("event_type", ["a b", "a..b", ".a", "ä", "a." * 16 + "a", "x" * 201, "a\n"])
def test_a_bad_type_is_malformed(event_type: str) -> None:
    assert why("Angarium-Type", event_type).startswith("Angarium-Type: event type ")


def test_our_own_types_are_refused() -> None:
    assert why("Angarium-Type", "angarium.ping").startswith("Angarium-Type: types that begin with angarium.")
    assert read({"Angarium-Type": "angarium"}).type == "angarium"


@pytest.mark.parametrize("content_type", ["a\r\nb", "a\0b", "ä", " ", "x" * 257])
def test_a_content_type_that_no_header_can_carry_is_malformed(content_type: str) -> None:
    assert why("Content-Type", content_type).startswith("Content-Type: ")


@pytest.mark.parametrize("source", ["0", "-1", "x", "1.0", "²", "9" * 5000, " 1"])
def test_a_source_that_no_router_wrote_is_malformed(source: str) -> None:
    assert why("Angarium-Source", source).startswith("Angarium-Source: ")


@pytest.mark.parametrize("again", ["a b", "a\r\nb", "x" * 129])
def test_an_again_that_no_redrive_wrote_is_malformed(again: str) -> None:
    assert why("Angarium-Again", again).startswith("Angarium-Again: ")


@pytest.mark.parametrize(
    "traceparent",
    ["", "00", TRACE.upper(), "ff" + TRACE[2:], TRACE + "\n", f"00-{'0' * 32}-b7ad6b7169203331-01"],
)
def test_an_invalid_trace_is_dropped_with_its_state(traceparent: str) -> None:
    event = read({"traceparent": traceparent, "tracestate": "a=b"})
    assert (event.traceparent, event.tracestate) == ("", "")


def test_an_invalid_trace_state_is_dropped_alone() -> None:
    event = read({"traceparent": TRACE, "tracestate": "a=\r\n"})
    assert (event.traceparent, event.tracestate) == (TRACE, "")


@given(
    st.dictionaries(
        st.sampled_from(["Angarium-Id", "Nats-Msg-Id", "Angarium-Type", "Angarium-Source", "Angarium-Again",
                         "Content-Type", "traceparent", "tracestate"]),
        st.text(max_size=300) | st.sampled_from(["1", "a.b", "text/plain", TRACE]),
    ),
    st.binary(max_size=10),
)  # fmt: skip
def test_nothing_unfit_for_http_passes_in_any_header(headers: dict[str, str], body: bytes) -> None:
    event = event_of(3, 1.5, headers, body)
    assert stored_event(StoredMessage("angarium.deliver.0.a.b", 3, 1.5, headers, body)) == event
    carried = (event.id, event.type, event.again, event.content_type, event.traceparent, event.tracestate)
    assert all(text.isascii() and text.replace("\t", " ").isprintable() for text in carried)
    assert event.body == body


def test_two_things_wrong_are_malformed_once() -> None:
    event = read({"Angarium-Type": "a b", "Content-Type": "ä"})
    assert event.malformed.startswith("Content-Type: ")
    assert (event.type, event.content_type) == ("message", "application/json")


def test_ids_that_no_receiver_can_have() -> None:
    assert receiver_problem("acme.billing") == ""
    assert receiver_problem("1cme.billing").startswith("tenant '1cme'")
    assert receiver_problem("acme._x").startswith("receiver name '_x'")


@pytest.mark.parametrize("region", ["EU", "eu us", "é", "a" * 33, "eu,us", "eu\n"])
def test_a_region_that_is_not_a_label_is_malformed(region: str) -> None:
    event = read({"Angarium-Region": region})
    assert (event.region, event.malformed) == ("", "Angarium-Region: one label, 1 to 32 of a-z 0-9 -")
