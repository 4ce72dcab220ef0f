"""Formats: the bytes of an event depend on it and its number alone, and published libraries read them."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from actors.json_depth import BODY_LEVELS_MAX, is_deep
from actors.machine.event import Event
from angarium.delivery.formats import Format, FormattedEvent, envelope, format_event

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
EVENT = Event(
    position=7, id="evt_1", stored_at=1614265330.25, body=b'{"a": 1.50,\n "b":[]}', type="order.created"
)
FORMATS: tuple[Format, ...] = ("envelope", "cloudevents", "cloudevents-structured")
ATTRIBUTES = {
    "specversion": "1.0",
    "id": "evt_1",
    "source": "/tenants/acme",
    "type": "order.created",
    "time": "2021-02-25T15:02:10.250Z",
    "angariumsequence": "41",
}


def formatted(body_format: Format, event: Event = EVENT, sequence: int | None = 41) -> FormattedEvent:
    return format_event(body_format, "acme.billing", event, sequence)


def enveloped(event: Event = EVENT, sequence: int | None = 41) -> dict[str, Any]:
    [only] = json.loads(envelope([(event, sequence)]))["events"]
    assert isinstance(only, dict)
    return only


def test_an_envelope_has_the_published_json_byte_for_byte() -> None:
    assert formatted("envelope") == FormattedEvent(
        b'{"events":[{"sequence":41,"id":"evt_1","type":"order.created",'
        b'"timestamp":"2021-02-25T15:02:10.250Z","data":{"a": 1.50,\n "b":[]}}]}',
        "application/json",
    )


def test_an_envelope_of_several_events_keeps_their_order() -> None:
    other = replace(EVENT, id="evt_2", body=b"[2]")
    assert [each["sequence"] for each in json.loads(envelope([(EVENT, 8), (other, 9)]))["events"]] == [8, 9]
    assert [each["data"] for each in json.loads(envelope([(EVENT, 8), (other, 9)]))["events"]] == [
        {"a": 1.5, "b": []}, [2],
    ]  # fmt: skip


def test_an_envelope_names_what_an_event_has_besides_its_data() -> None:
    event = replace(EVENT, again="dead-17", content_type="text/plain", body=b"\xff")
    assert enveloped(event) == {
        "sequence": 41, "id": "evt_1", "type": "order.created", "timestamp": "2021-02-25T15:02:10.250Z",
        "again": "dead-17", "content_type": "text/plain", "data_base64": "/w==",
    }  # fmt: skip


def test_a_ping_in_an_envelope_has_no_number() -> None:
    assert "sequence" not in enveloped(sequence=None)
    assert "angariumsequence" not in json.loads(formatted("cloudevents-structured", sequence=None).body)
    assert not any(b"sequence" in line for line in formatted("cloudevents", sequence=None).lines)


def test_an_envelope_has_the_time_at_which_the_event_was_published() -> None:
    routed = replace(EVENT, published_at=1614265300.0)
    assert enveloped(routed)["timestamp"] == "2021-02-25T15:01:40.000Z"


def test_a_binary_cloudevent_is_the_published_body_with_the_attributes_as_headers() -> None:
    assert formatted("cloudevents") == FormattedEvent(
        EVENT.body,
        "application/json",
        tuple(f"ce-{name}: {value}".encode() for name, value in ATTRIBUTES.items()),
    )


def test_a_structured_cloudevent_has_the_attributes_and_the_published_json() -> None:
    made = formatted("cloudevents-structured")
    assert made.content_type == "application/cloudevents+json"
    assert made.lines == ()
    members = {"datacontenttype": "application/json", "data": {"a": 1.5, "b": []}}
    assert json.loads(made.body) == ATTRIBUTES | members
    assert EVENT.body in made.body


@pytest.mark.parametrize("body_format", ["cloudevents", "cloudevents-structured"])
def test_a_cloudevent_says_that_it_was_sent_again_and_whose_trace_it_is_in(body_format: Format) -> None:
    event = replace(EVENT, again="replay-1", traceparent=TRACE, tracestate='a=b "c" 5%')
    expected = {"angariumagain": "replay-1", "traceparent": TRACE, "tracestate": 'a=b "c" 5%'}
    made = formatted(body_format, event)
    if body_format == "cloudevents":
        lines = {line.decode() for line in made.lines}
        assert lines >= {f"ce-angariumagain: {event.again}", f"ce-traceparent: {TRACE}"}
        assert "ce-tracestate: a=b%20%22c%22%205%25" in lines
    else:
        assert json.loads(made.body).items() >= expected.items()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xef\xbb\xbf{}",
        b'"\xff"',
        b"NaN",
        b"[1,]",
        b"{} {}",
        b"01",
        b'"\\x"',
        b'"\\ud800"',
        b'{"\\udc00": 1}',
        b'"\\ud800\\u0041"',
        b'"\xed\xa0\x80"',
        b"[" * (BODY_LEVELS_MAX + 1) + b"]" * (BODY_LEVELS_MAX + 1),
        b"[" * 200_000 + b"]" * 200_000,
        b"]" * 200 + b"[" * 200,
        b'["' + b"\\" * 200_001,
        b"[" * 200 + b'"' + b'\\"' * 100_000,
    ],
)
def test_a_body_that_is_not_json_is_sent_in_base64(body: bytes) -> None:
    event = replace(EVENT, body=body)
    written = base64.b64encode(body).decode()
    assert enveloped(event)["data_base64"] == written
    structured = json.loads(formatted("cloudevents-structured", event).body)
    assert structured["data_base64"] == written
    assert "data" not in structured


@pytest.mark.parametrize(
    ("content_type", "is_json"),
    [
        ("application/json", True),
        ("Application/JSON; charset=utf-8", True),
        ("application/cloudevents+json", True),
        ("application/vnd.acme+json;v=1", True),
        ("text/plain", False),
        ("application/jsonlines", False),
    ],
)
def test_a_body_is_json_by_its_type_only(content_type: str, is_json: bool) -> None:
    assert ("data" in enveloped(replace(EVENT, content_type=content_type))) is is_json


@pytest.mark.parametrize(
    "body",
    [
        b"[" * BODY_LEVELS_MAX + b"]" * BODY_LEVELS_MAX,
        b'["' + b"[{" * 5000 + b'\\"]"]',
        b"[" + b"{}," * 5000 + b"{}]",
        b" 1e999 ",
        b'"\\ud83d\\ude00"',
        b"null",
    ],
)
def test_json_within_the_limits_is_sent_as_it_is(body: bytes) -> None:
    event = replace(EVENT, body=body)
    assert body.strip() in formatted("envelope", event).body
    assert "data_base64" not in enveloped(event)


TOKENS = st.sampled_from([
    b"[" * 60, b"]" * 60, b"{" * 9, b"}" * 9, b"[{", b"}]", b"[]" * 200, b'""', b'"a"', b'"[["', b'"]"',
    rb'"\\"', rb'"\\\"[["', rb'"\"]]"', b",1,",
])  # fmt: skip


def deepest(tokens: list[bytes]) -> int:
    """The depth of a text, bracket by bracket."""
    depth = found = 0
    for token in tokens:
        for byte in token if not token.startswith(b'"') else b"":
            depth += (byte in b"[{") - (byte in b"]}")
            found = max(found, depth)
    return found


@given(st.lists(TOKENS, max_size=40), st.sampled_from([b"", b'"', b'"[[', b'"' + b"[" * 999]))
def test_the_depth_is_that_of_the_brackets_outside_strings(tokens: list[bytes], end: bytes) -> None:
    assert is_deep(b"".join(tokens) + end) is (deepest(tokens) > BODY_LEVELS_MAX)


@given(st.lists(st.sampled_from([b"[" * 100, b"]" * 99, b"[]" * 5000, b"[" * 28]), max_size=20))
def test_the_depth_of_many_brackets_is_counted_to_the_level(tokens: list[bytes]) -> None:
    assert is_deep(b"".join(tokens)) is (deepest(tokens) > BODY_LEVELS_MAX)


def test_the_decoder_of_json_does_not_depend_on_the_depth_of_its_caller() -> None:
    event = replace(EVENT, body=b"[" * BODY_LEVELS_MAX + b"]" * BODY_LEVELS_MAX)

    def at_depth(frames: int) -> bytes:
        return at_depth(frames - 1) if frames else formatted("envelope", event).body

    assert at_depth(600) == formatted("envelope", event).body


@given(st.sampled_from(FORMATS), st.binary(max_size=300), st.integers(1, 2**60))
def test_every_attempt_of_an_event_has_the_same_bytes(
    body_format: Format, body: bytes, sequence: int
) -> None:
    event = replace(EVENT, body=body)
    again = replace(event, position=8)
    assert formatted(body_format, event, sequence) == formatted(body_format, again, sequence)


@pytest.mark.parametrize(
    "content_type",
    ["application/cloudevents+json", "Application/CloudEvents+JSON; charset=utf-8",
     "application/cloudevents-batch+json", "application/cloudevents"],
)  # fmt: skip
def test_a_published_cloudevent_is_the_data_of_a_structured_one(content_type: str) -> None:
    """In binary mode receivers would take its attributes for those of the event, numbers included."""
    event = replace(EVENT, content_type=content_type)
    assert formatted("cloudevents", event) == formatted("cloudevents-structured", event)
    assert formatted("cloudevents", event).content_type == "application/cloudevents+json"


@given(
    st.recursive(
        st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.text(), st.lists, max_leaves=20
    )
)
def test_the_published_library_reads_every_cloudevent(data: Any) -> None:
    from cloudevents.core.bindings.http import HTTPMessage, from_http_event

    body = json.dumps(data).encode()
    event = replace(EVENT, body=body, again="dead-1", traceparent=TRACE, tracestate='a="b c"')
    expected = ATTRIBUTES | {
        "datacontenttype": "application/json", "angariumagain": "dead-1", "traceparent": TRACE,
        "tracestate": 'a="b c"',
    }  # fmt: skip
    for body_format in ("cloudevents", "cloudevents-structured"):
        made = format_event(body_format, "acme.billing", event, 41)
        headers = dict(line.decode().split(": ", 1) for line in made.lines)
        read = from_http_event(HTTPMessage(headers | {"content-type": made.content_type}, made.body))
        attributes = read.get_attributes()
        attributes["time"] = attributes["time"].isoformat(timespec="milliseconds").replace("+00:00", "Z")
        assert attributes == expected
        assert read.get_data() == data
