"""Recorded attempts and settled deliveries become spans, with the ids that receivers got."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from actors.configuration.policy import Policy
from actors.machine.event import Event
from actors.machine.facts import (
    AttemptFailed,
    DeadLettered,
    Delivered,
    Fact,
    Forgot,
    Missing,
    Parked,
    Removed,
    Repaired,
    Throttled,
    Unparked,
)
from actors.machine.numbering import with_number
from actors.machine.state import State
from actors.ports import Attempt, BatchAttempt
from angarium.settings import SettingsError
from angarium.telemetry import known_traces, tracer
from angarium.telemetry.exemplars import Exemplar
from angarium.telemetry.open_tracing import open_tracing, sampler_of
from angarium.telemetry.spans import Span
from angarium.telemetry.trace_ids import Sampler, always, never
from angarium.telemetry.tracer import MOMENTS_MAX, Tracer
from streams.journal.journal import JournalEntry
from streams.routing.routed_events import RoutedEvent
from tests.support.secrecy import CREDENTIAL, SECRET, secrets_in

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
RECEIVER = "acme.billing"
EVENT = Event(position=7, id="e7", stored_at=100.0, body=b"whsec_body", traceparent=PARENT)
ROUTED = RoutedEvent(
    tenant="acme", id="e7", source=5, stored_at=99.0, type="order.created", traceparent=PARENT,
    malformed=False, copies=2,
)  # fmt: skip
POLICY = Policy(
    url="https://user:hush-hush@example.com/T0KEN?key=hush-hush", secrets=(SECRET,),
    headers={"authorization": CREDENTIAL},
)  # fmt: skip


ATTEMPT = Attempt(
    receiver=RECEIVER, policy=POLICY, event=EVENT, sequence=3, ordinal=1, may_start=lambda: True, shapings=()
)


class Traced:
    """A tracer, the headers that it made, and the spans that it exported."""

    def __init__(self, sampler: Sampler = always, *, failures: bool = False) -> None:
        self.spans: list[Span] = []
        self.headers: list[str] = []
        self.room = True
        self.tracer = Tracer(sampler, self._take, failures=failures, clock=lambda: 101.0)

    def _take(self, make: Callable[[], Span]) -> bool:
        self.spans.append(make())
        return self.room

    def attempt(self, ordinal: int = 1, event: Event = EVENT, sequence: int | None = 3) -> str:
        header = self.tracer.traceparent(replace(ATTEMPT, event=event, sequence=sequence, ordinal=ordinal))
        self.headers.append(header.decode())
        return header.decode()

    def attempt_batch(self, *events: Event, ordinal: int = 1) -> str:
        """An attempt of these events, whose numbers are their positions."""
        attempt = BatchAttempt(
            receiver=RECEIVER, policy=POLICY, events=events, ordinal=ordinal, may_start=lambda: True,
            sequences=tuple(each.position for each in events), shapings=(),
        )  # fmt: skip
        return self.tracer.traceparent(attempt).decode()

    def record_batch(self, kind: Callable[..., Fact], *events: Event, **members: Any) -> None:
        numbered = tuple(with_number(each, each.position) for each in events)
        fact = kind(receiver=RECEIVER, events=numbered, **members)
        self.tracer.export([JournalEntry(1, fact, State(receiver=RECEIVER))])

    def route(self, event: RoutedEvent) -> None:
        when_recorded = self.tracer.routed(event)
        if when_recorded is not None:
            when_recorded()

    def record(
        self, kind: Callable[..., Fact], event: Event = EVENT, sequence: int = 3, **members: Any
    ) -> None:
        fact = kind(receiver=RECEIVER, events=(with_number(event, sequence),), **members)
        self.tracer.export([JournalEntry(1, fact, State(receiver=RECEIVER))])


def sent(span: Span) -> str:
    """The header that names this span."""
    return f"00-{span.trace:032x}-{span.span:016x}-01"


def test_a_delivery_is_one_tree_below_its_producer() -> None:
    traced = Traced()
    traced.attempt(1)
    traced.record(AttemptFailed, at=103.0, attempt=1, error=f"timeout: {CREDENTIAL}", latency_ms=500.0)
    traced.attempt(2)
    traced.record(Throttled, at=104.0, attempt=2, status=429)
    traced.attempt(3)
    traced.record(Delivered, at=105.0, attempt=3, status=204)
    first, second, third, deliver = traced.spans
    assert [sent(span) for span in (first, second, third)] == traced.headers
    assert {span.trace for span in traced.spans} == {0x0AF7651916CD43DD8448EB211C80319C}
    assert (deliver.name, deliver.parent) == ("deliver acme.billing", 0xB7AD6B7169203331)
    assert {span.parent for span in (first, second, third)} == {deliver.span}
    assert (first.start, first.end, deliver.start, deliver.end) == (102.5, 103.0, 100.0, 105.0)
    assert [span.attributes.get("error.type") for span in traced.spans] == ["timeout", "429", None, None]
    assert third.attributes == {
        "http.request.method": "POST", "http.response.status_code": 204, "http.request.resend_count": 2,
        "server.address": "example.com", "server.port": 443, "url.scheme": "https",
    }  # fmt: skip
    assert [(each.name, each.at) for each in deliver.moments] == [
        ("backing_off", 103.0),
        ("throttled", 104.0),
    ]
    assert not secrets_in(repr(traced.spans))
    assert "whsec_body" not in repr(traced.spans)


def of_receiver(fact: Fact) -> list[JournalEntry]:
    return [JournalEntry(1, fact, State(receiver=RECEIVER))]


def test_a_receiver_that_was_removed_is_parked_no_longer() -> None:
    traced = Traced()
    traced.tracer.export(of_receiver(Parked(receiver=RECEIVER, at=90.0)))
    traced.tracer.export(of_receiver(Removed(receiver=RECEIVER, at=95.0, position=0, next_sequence=1)))
    traced.attempt()
    traced.record(Delivered, at=120.0, attempt=1, status=204)
    assert traced.spans[-1].moments == ()


@pytest.mark.parametrize("batched", [False, True])
def test_an_event_that_waited_in_the_stream_alone_was_parked_from_then_on(batched: bool) -> None:
    """Later ones were parked when they were stored; those after the end of it were not."""
    traced = Traced()
    before, later, after = (replace(EVENT, position=n, id=f"e{n}", stored_at=80.0 + n) for n in (8, 19, 29))
    traced.tracer.export(of_receiver(Parked(receiver=RECEIVER, at=90.0)))
    for event in (before, later):
        if batched:
            traced.attempt_batch(event, replace(event, position=event.position + 1, id="other"))
        else:
            traced.attempt(1, event, event.position)
    traced.tracer.export(of_receiver(Unparked(receiver=RECEIVER, at=105.0)))
    traced.attempt(1, after, after.position)
    for event in (before, later, after):
        traced.record(Delivered, event, event.position, at=120.0, attempt=1, status=204)
    deliveries = [span for span in traced.spans if span.name.startswith("deliver ")]
    parked = [[(each.name, each.at) for each in span.moments] for span in deliveries]
    assert parked == [[("parked", 90.0)], [("parked", 99.0)], []]


def test_a_limited_number_of_parked_receivers_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracer, "PARKED_MAX", 2)
    traced = Traced()
    for name in (RECEIVER, "acme.b", "acme.c"):
        traced.tracer.export(of_receiver(Parked(receiver=name, at=90.0)))
    traced.attempt()
    traced.record(Delivered, at=120.0, attempt=1, status=204)
    assert traced.spans[-1].moments == ()


def test_a_batch_has_a_span_of_its_own_that_is_linked_with_its_deliveries() -> None:
    traced, other = Traced(), replace(EVENT, position=8, id="e8", traceparent="")
    first = traced.attempt_batch(EVENT, other)
    traced.record_batch(AttemptFailed, EVENT, other, at=103.0, attempt=1, error="timeout", latency_ms=500.0)
    second = traced.attempt_batch(EVENT, other, ordinal=2)
    traced.record_batch(Delivered, EVENT, other, at=105.0, attempt=2, status=204)
    posts = [span for span in traced.spans if "messaging.batch.message_count" in span.attributes]
    deliveries = [span for span in traced.spans if span.name.startswith("deliver ")]
    assert [sent(span) for span in posts] == [first, second]
    assert {(span.parent, span.attributes["messaging.batch.message_count"]) for span in posts} == {(0, 2)}
    assert [span.attributes.get("error.type") for span in posts] == ["timeout", None]
    assert (posts[0].start, posts[0].end) == (102.5, 103.0)
    assert len({span.trace for span in [*posts, *deliveries]}) == 3
    names = {(span.trace, span.span) for span in deliveries}
    assert [set(span.links) for span in posts] == [names, names]
    linked = [(span.trace, span.span) for span in posts]
    assert [list(span.links) for span in deliveries] == [linked, linked]


def test_a_batch_of_traces_that_are_not_sampled_has_no_span() -> None:
    traced = Traced(never)
    event = replace(EVENT, traceparent="")
    assert traced.attempt_batch(event).endswith("-00")
    traced.record_batch(Delivered, event, at=105.0, attempt=1, status=204)
    assert traced.spans == []


def test_the_last_exported_span_of_each_bucket_is_an_exemplar() -> None:
    traced, unsampled, full = Traced(), Traced(never, failures=True), Traced()
    full.room = False
    for number, latency_ms in ((1, 4.0), (2, 4.0), (3, 70_000.0)):
        traced.attempt(sequence=number)
        traced.record(Delivered, sequence=number, at=100.0 + number, attempt=1, latency_ms=latency_ms)
        full.attempt(sequence=number)
        full.record(Delivered, sequence=number, at=100.0, attempt=1)
        unsampled.attempt(sequence=number, event=replace(EVENT, traceparent=""))
        unsampled.record(
            Delivered, replace(EVENT, traceparent=""), number, at=100.0, attempt=1, latency_ms=latency_ms
        )
    attempt_s, arrival_s = traced.tracer.exemplars
    (_, _, second, second_settled, third, _) = traced.spans
    assert [each for each in attempt_s.by_bucket if each is not None] == [
        Exemplar(0.004, second.trace, second.span, 102.0),
        Exemplar(70.0, third.trace, third.span, 103.0),
    ]
    assert attempt_s.by_bucket[-1] is not None
    assert Exemplar(2.0, second_settled.trace, second_settled.span, 102.0) in arrival_s.by_bucket
    assert not any(any(each.by_bucket) for each in unsampled.tracer.exemplars + full.tracer.exemplars)


def test_the_deliveries_of_a_fan_out_are_below_its_routing() -> None:
    for traceparent, parent in ((PARENT, 0xB7AD6B7169203331), ("", 0)):
        copy, traced = replace(EVENT, source=5, published_at=99.0, traceparent=traceparent), Traced()
        traced.route(replace(ROUTED, traceparent=traceparent))
        traced.attempt(event=copy)
        traced.record(Delivered, copy, at=105.0, attempt=1)
        route, post, deliver = traced.spans
        assert (route.name, route.parent, route.start, route.end) == ("route acme", parent, 99.0, 101.0)
        assert deliver.start == 99.0
        assert (deliver.parent, post.parent) == (route.span, deliver.span)
        assert len({span.trace for span in traced.spans}) == 1
    assert route.attributes["angarium.copies"] == 2


def test_a_malformed_event_is_a_failed_routing_without_invented_names() -> None:
    traced = Traced()
    traced.route(replace(ROUTED, tenant="sk live", malformed=True, type=""))
    (route,) = traced.spans
    assert (route.name, route.attributes["messaging.destination.name"]) == ("route _other", "_other")
    assert (route.failed, route.attributes["error.type"]) == (True, "malformed")
    assert "angarium.event.type" not in route.attributes


def test_a_dead_letter_ends_its_delivery_as_failed() -> None:
    traced = Traced()
    traced.attempt()
    traced.record(DeadLettered, at=109.0, reason="expired", attempts=1)
    (deliver,) = traced.spans
    assert (deliver.failed, deliver.attributes["error.type"]) == (True, "expired")


@pytest.mark.parametrize("failures", [True, False])
def test_a_delivery_that_failed_is_exported_without_being_sampled_if_that_is_set(failures: bool) -> None:
    event = replace(EVENT, traceparent=PARENT[:-2] + "00")
    for outcomes, names in (
        ([Delivered], []),
        ([AttemptFailed, Delivered], ["POST", "POST", "deliver acme.billing"]),
        ([Throttled, Delivered], ["POST", "POST", "deliver acme.billing"]),
        ([AttemptFailed, DeadLettered], ["POST", "deliver acme.billing"]),
    ):
        traced = Traced(failures=failures)
        for attempt, kind in enumerate(outcomes, 1):
            ended = {"reason": "attempts"} if kind is DeadLettered else {"attempt": attempt}
            assert kind is DeadLettered or traced.attempt(attempt, event).endswith("-00")
            traced.record(kind, event, at=100.0 + attempt, **ended)
        assert [span.name for span in traced.spans] == (names if failures else [])
    another = Traced(failures=failures)
    another.attempt(2, event)
    another.record(Delivered, event, at=109.0, attempt=2)
    assert len(another.spans) == (2 if failures else 0), "the owner after a takeover"


def test_another_owner_gives_the_same_attempt_the_same_span() -> None:
    event = replace(EVENT, traceparent="")
    first, second = Traced().attempt(2, event), Traced().attempt(2, event)
    assert first == second
    assert first != Traced().attempt(3, event)
    assert first.split("-")[1] != Traced().attempt(2, replace(event, id="e8")).split("-")[1]


def test_the_producer_decides_and_the_sampler_only_without_one() -> None:
    unsampled = replace(EVENT, traceparent=PARENT[:-2] + "00")
    for event, sampler, flags in (
        (EVENT, never, "01"), (unsampled, always, "00"),
        (replace(EVENT, traceparent=""), always, "01"), (replace(EVENT, traceparent=""), never, "00"),
    ):  # fmt: skip
        traced = Traced(sampler)
        assert traced.attempt(1, event).endswith(flags)
        traced.record(Delivered, event, at=105.0, attempt=1)
        assert len(traced.spans) == (2 if flags == "01" else 0)
        traced.route(replace(ROUTED, traceparent=event.traceparent))
        assert len(traced.spans) == (3 if flags == "01" else 0)


@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.sampled_from([Delivered, AttemptFailed, Throttled])), max_size=20
    )
)
def test_each_recorded_attempt_is_one_span_and_each_settled_delivery_one(
    outcomes: list[tuple[int, Callable[..., Fact]]],
) -> None:
    traced, attempts, settled = Traced(), dict[int, int](), set[int]()
    for sequence, kind in outcomes:
        if sequence in settled:
            continue
        attempts[sequence] = attempts.get(sequence, 0) + 1
        traced.attempt(attempts[sequence], sequence=sequence)
        traced.record(kind, sequence=sequence, at=105.0, attempt=attempts[sequence], status=500)
        settled |= {sequence} if kind is Delivered else set()
    posts = [sent(span) for span in traced.spans if span.name == "POST"]
    assert posts == traced.headers
    assert len({span.span for span in traced.spans}) == len(posts) + len(settled) == len(traced.spans)


def test_a_ping_and_too_many_events_take_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_traces, "TENANT_TRACES_MAX", 2)
    traced = Traced()
    traced.attempt(sequence=None)
    for sequence in (1, 2, 3):
        traced.attempt(sequence=sequence)
    for sequence in (1, 2, 3):
        traced.record(Delivered, sequence=sequence, at=105.0, attempt=1)
    assert [each.attributes["angarium.sequence"] for each in traced.spans if each.name != "POST"] == [2, 3]
    assert traced.tracer.dropped == 1


@pytest.mark.parametrize(("kind", "members"), [
    (Forgot, {"position": 9}), (Removed, {"position": 9}), (Missing, {"first": 7, "last": 7}),
    (Repaired, {"position": 6}),
])  # fmt: skip
def test_the_traces_of_events_that_were_discarded_are_forgotten(
    kind: Callable[..., Fact], members: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_traces, "TENANT_TRACES_MAX", 1)
    traced = Traced()
    traced.attempt()
    fact = kind(receiver=RECEIVER, at=104.0, next_sequence=4, **members)
    traced.tracer.export([JournalEntry(1, fact, State(receiver=RECEIVER))])
    traced.attempt(sequence=4)
    traced.record(Delivered, at=105.0, attempt=1)
    assert (traced.spans, traced.tracer.dropped) == ([], 0)


def test_settled_events_make_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_traces, "TENANT_TRACES_MAX", 1)
    traced = Traced()
    for sequence in range(3):
        traced.attempt(sequence=sequence)
        traced.record(Delivered, sequence=sequence, at=105.0, attempt=1)
    assert (len(traced.spans), traced.tracer.dropped) == (6, 0)


def test_receivers_with_the_same_number_in_one_trace_have_spans_of_their_own() -> None:
    spans = {
        Tracer(always, lambda make: True).traceparent(replace(ATTEMPT, receiver=receiver))
        for receiver in (RECEIVER, "acme.shipping")
    }
    assert len({each.split(b"-")[1] for each in spans}) == 1
    assert len({each.split(b"-")[2] for each in spans}) == 2


def test_a_delivery_keeps_a_limited_number_of_moments() -> None:
    traced = Traced()
    for attempt in range(1, MOMENTS_MAX + 3):
        traced.attempt(attempt)
        traced.record(AttemptFailed, at=100.0 + attempt, attempt=attempt, status=500)
    traced.record(DeadLettered, at=200.0, reason="attempts", attempts=MOMENTS_MAX + 2)
    assert len(traced.spans[-1].moments) == MOMENTS_MAX


def test_without_an_endpoint_there_is_no_tracing() -> None:
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
    for environ in (
        {},
        endpoint | {"OTEL_SDK_DISABLED": "true"},
        endpoint | {"OTEL_TRACES_EXPORTER": "none"},
    ):
        assert open_tracing(environ, "one") is None


@pytest.mark.parametrize(("name", "value"), [
    ("OTEL_TRACES_SAMPLER", "jaeger_remote"), ("OTEL_TRACES_SAMPLER_ARG", "2"),
    ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"), ("OTEL_BSP_MAX_QUEUE_SIZE", "0"),
    ("OTEL_BSP_MAX_QUEUE_SIZE", "65537"), ("OTEL_BSP_SCHEDULE_DELAY", "1" * 5000),
])  # fmt: skip
def test_a_variable_that_cannot_be_used_is_named(name: str, value: str) -> None:
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_SAMPLER": "traceidratio"}
    with pytest.raises(SettingsError, match=f"^{name}: "):
        open_tracing(environ | {name: value}, "one")


def test_the_ratio_samples_that_part_of_the_traces() -> None:
    sampler = sampler_of({"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.25"})
    assert [sampler(trace << 62) for trace in range(4)] == [True, False, False, False]
