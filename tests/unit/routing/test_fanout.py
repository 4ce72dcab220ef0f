"""Events of the events stream, and the headers of their copies."""

import msgspec
import pytest

from actors.machine.facts import AlertRaised, AlertRecovered
from actors.machine.numbering import with_number
from actors.machine.state import as_numbered, fresh_entry
from streams.alert_events import body_of, id_of
from streams.nats.wire_names import UNREAD
from streams.reading.messages import HEADERS_UNREAD, event_of
from streams.routing.fanout import copy_headers, published_event

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
AT = 1_700_000_000.25


def test_a_copy_has_the_passed_on_headers_and_its_source() -> None:
    headers = {
        "Angarium-Id": "order-1", "Nats-Msg-Id": "acme:order-1", "Content-Type": "text/plain",
        "X-Own": "dropped", "traceparent": TRACE, "tracestate": "a=b", "Angarium-Region": "eu",
    }  # fmt: skip
    event = published_event(7, AT, "acme.order.created", headers, b"body")
    assert copy_headers(event) == {
        "Angarium-Id": "order-1", "Angarium-Type": "order.created", "Angarium-Source": "7",
        "Angarium-Published": "1700000000.250", "Content-Type": "text/plain",
        "traceparent": TRACE, "tracestate": "a=b", "Angarium-Region": "eu",
    }  # fmt: skip


def test_the_actor_reads_of_a_copy_what_was_published() -> None:
    published = {"Nats-Msg-Id": "order 1", "Content-Type": "text/plain", "traceparent": TRACE}
    published |= {"Angarium-Region": "eu"}
    event = published_event(7, AT, "acme.order.created", published, b"body")
    copy = event_of(99, AT + 1, copy_headers(event), b"body")
    assert (copy.id, copy.type, copy.source, copy.malformed) == (event.id, "order.created", 7, "")
    assert copy.region == "eu"
    assert event.id.startswith("h_")
    assert (copy.content_type, copy.traceparent, copy.body) == ("text/plain", TRACE, b"body")


def test_an_event_that_is_sent_again_has_no_source() -> None:
    event = published_event(7, AT, "acme.a", {"Angarium-Id": "x", "Angarium-Again": "r1"}, b"")
    assert copy_headers(event) == {
        "Angarium-Id": "x", "Angarium-Type": "a", "Angarium-Again": "r1",
        "Angarium-Published": "1700000000.250",
    }  # fmt: skip


def test_a_copy_that_had_to_wait_knows_when_its_event_was_published() -> None:
    event = published_event(7, AT, "acme.a", {"Angarium-Published": "1.000"}, b"")
    assert (event.published_at, event.accepted_at) == (0.0, AT)
    late, soon = (event_of(99, AT + after, copy_headers(event), b"") for after in (7.64, 0.005))
    assert (late.stored_at, late.published_at, late.accepted_at) == (AT + 7.64, AT, AT)
    assert (soon.published_at, soon.accepted_at) == (0.0, AT + 0.005)
    numbered = with_number(late, 3)
    assert (numbered.accepted_at, as_numbered(fresh_entry(numbered))) == (AT, numbered)


ALERT = AlertRaised(receiver="acme.billing", alert="failing", number=7, at=AT, since=AT - 60, why="HTTP 503")


def test_an_event_about_an_alert_and_its_copy_are_not_malformed() -> None:
    headers = {"Angarium-Id": id_of(ALERT), "Angarium-About": "acme.billing"}
    event = published_event(7, AT, "acme.angarium.alert.failing", headers, body_of(ALERT))
    assert (event.id, event.about) == ("alert:acme:billing:7:1700000000250", "acme.billing")
    assert (event.type, event.malformed) == ("angarium.alert.failing", "")
    copy = event_of(99, AT + 1, copy_headers(event), event.body)
    assert (copy.type, copy.id, copy.malformed, copy.about) == (event.type, event.id, "", "")


def test_the_body_of_an_alert_says_all_about_it() -> None:
    assert msgspec.json.decode(body_of(ALERT)) == {
        "receiver": "acme.billing", "alert": "failing", "change": "raised", "number": 7,
        "at": "2023-11-14T22:13:20.250Z", "since": "2023-11-14T22:12:20.250Z", "why": "HTTP 503",
    }  # fmt: skip
    over = AlertRecovered(receiver="acme.billing", alert="behind", number=8, at=AT, raised_at=AT - 60)
    assert msgspec.json.decode(body_of(over))["change"] == "recovered"


@pytest.mark.parametrize("about", ["", "other.billing", "acme"])
def test_a_producer_cannot_publish_an_alert_without_a_receiver_of_its_tenant(about: str) -> None:
    event = published_event(7, AT, "acme.angarium.alert.failing", {"Angarium-About": about}, b"{}")
    assert "are Angarium's own" in event.malformed
    assert event.about == ""


def test_an_event_that_is_not_an_alert_is_about_no_receiver() -> None:
    """Otherwise a producer could keep any event from a receiver, by a header."""
    event = published_event(7, AT, "acme.order", {"Angarium-About": "acme.billing"}, b"{}")
    assert (event.about, event.malformed) == ("", "")


@pytest.mark.parametrize("header", [{"Angarium-Source": "7"}, {"Angarium-Again": "r1"}])
def test_a_copy_of_an_event_about_an_alert_has_its_type_also_when_it_is_sent_again(
    header: dict[str, str],
) -> None:
    copy = event_of(99, AT, {"Angarium-Type": "angarium.alert.failing"} | header, b"")
    assert (copy.type, copy.malformed) == ("angarium.alert.failing", "")


def test_a_direct_send_cannot_have_the_type_of_an_alert() -> None:
    assert "are Angarium's own" in event_of(7, AT, {"Angarium-Type": "angarium.alert.failing"}, b"").malformed


@pytest.mark.parametrize(
    ("said", "source"),
    [("1.000", ""), ("1.000", "7"), ("x", "7"), ("nan", "7"), ("1700000009.000", "7"), ("9" * 400, "7")],
)
def test_a_time_that_no_router_wrote_is_ignored(said: str, source: str) -> None:
    """A direct send has none. No event is published after its copy is stored, or before streams begin."""
    event = event_of(7, AT, {"Angarium-Published": said, "Angarium-Source": source}, b"")
    assert (event.published_at, event.malformed) == (0.0, "")


def test_a_derived_id_is_not_that_of_a_direct_send_at_the_same_place_and_time() -> None:
    """Otherwise a receiver that gets both would take the second for a repeat of the first."""
    routed, direct = published_event(7, AT, "acme.a", None, b""), event_of(7, AT, None, b"")
    assert (routed.id, direct.id) == ("evt_e7_1700000000250", "evt_7_1700000000250")


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("1st.a", "tenant '1st': a letter, then"),
        ("acme.a b", "event type 'a b': 1 to 16 tokens"),
        ("acme.größe", "event type 'größe'"),
        ("acme." + "x" * 201, "event type 'xxx"),
        ("acme.a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q", "event type 'a.b."),
        ("acme.angarium.ping", "types that begin with angarium. are Angarium's own"),
    ],
)
def test_a_subject_that_no_receiver_can_subscribe_to_is_malformed(address: str, why: str) -> None:
    event = published_event(7, AT, address, None, b"")
    assert event.malformed.startswith(why)
    assert event.type == address.partition(".")[2]


def test_a_header_that_cannot_be_passed_on_makes_it_malformed() -> None:
    event = published_event(7, AT, "acme.a", {"Content-Type": "a\x00b"}, b"")
    assert event.malformed.startswith("Content-Type: ")


def test_headers_that_mean_something_elsewhere_mean_nothing_here() -> None:
    event = published_event(7, AT, "acme.a", {"Angarium-Type": "a b", "Angarium-Source": "forged"}, b"")
    assert (event.type, event.source, event.malformed) == ("a", 0, "")


def test_an_event_whose_headers_are_not_read_is_malformed_with_an_id_of_its_stream() -> None:
    event = published_event(7, AT, "acme.order.created", {UNREAD: "65000"}, b"body")
    plain = published_event(7, AT, "acme.order.created", None, b"body")
    assert (event.id, event.type, event.body) == (plain.id, "order.created", b"body")
    assert event.malformed == HEADERS_UNREAD
