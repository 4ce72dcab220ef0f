"""The tracer of a node: knows the traces of attempted events, and makes spans of confirmed facts.

A fact does not contain the trace of its event, so the sender notes it when it makes the attempt, if its spans
may be exported.
"""

import time
from collections.abc import Callable, Sequence

from actors.delivery_totals import ARRIVAL_BOUNDS_S, ATTEMPT_BOUNDS_S
from actors.ids import tenant_of
from actors.machine.event import Event
from actors.machine.facts import (
    AttemptFailed,
    DeadLettered,
    Delivered,
    Forgot,
    Missing,
    Parked,
    Removed,
    Repaired,
    Throttled,
    Unparked,
)
from actors.machine.numbering import Numbered
from actors.ports import Attempt, BatchAttempt, Recorded
from angarium.telemetry.exemplars import Exemplar, Exemplars
from angarium.telemetry.known_traces import KnownTrace, KnownTraces
from angarium.telemetry.spans import (
    Moment,
    Span,
    SpanName,
    attempt_span,
    batch_span,
    delivery_name,
    delivery_span,
    moment,
    route_span,
)
from angarium.telemetry.trace_ids import (
    DELIVERY_ORDINAL,
    SAMPLED_FLAG,
    Sampler,
    batch_span_ids,
    span_id,
    trace_context,
    unexported_span_id,
)
from streams.routing.routed_events import RoutedEvent

PARKED_MAX = 4096
"""Parked receivers that are known; of more, the events have no moment `parked`."""
PARKING = (Parked, Unparked, Removed)
"""Facts that tell whether a receiver is parked. A union, made for each fact, takes twice as long."""
MOMENTS_MAX = 32
"""Moments of one delivery; later ones are left out. Of its POSTs the last ones are kept, as many."""


class Tracer:
    """Notes attempts and makes their spans.

    `export` takes each span; it must neither block nor raise, and returns False if it drops the span.

    `failures`: if a trace is not sampled, the spans of a delivery are exported nevertheless, from the first
    attempt on that did not deliver it. `clock` is in seconds since the epoch: no record says when an event
    was routed.

    `exemplars`: of `attempt_s` and of `arrival_s`, as `DeliveryTotals` counts them.
    """

    def __init__(
        self,
        sampler: Sampler,
        export: Callable[[Callable[[], Span]], bool],
        *,
        failures: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._sampler = sampler
        self._export = export
        self._failures = failures
        self._clock = clock
        self._known = KnownTraces()
        self._parked_at: dict[str, float] = {}
        self.exemplars = (Exemplars(ATTEMPT_BOUNDS_S), Exemplars(ARRIVAL_BOUNDS_S))

    @property
    def dropped(self) -> int:
        """Events whose spans are left out from some attempt on: too many others were not settled."""
        return self._known.dropped

    @property
    def known(self) -> int:
        """Events that were attempted and are not settled, as far as their spans may be exported."""
        return len(self._known)

    def traceparent(self, attempt: Attempt | BatchAttempt) -> bytes:
        """The header of the attempt, whose trace is noted if a span of it may be exported."""
        if isinstance(attempt, BatchAttempt):
            return self._traceparent_of_batch(attempt)
        receiver, event, sequence = attempt.receiver, attempt.event, attempt.sequence
        addressee = tenant_of(receiver) if event.source else receiver
        context = trace_context(addressee, event.id, event.traceparent, self._sampler)
        if not (context.is_sampled or self._failures):
            span = unexported_span_id(receiver, sequence, attempt.ordinal)
        else:
            span = span_id(receiver, sequence, attempt.ordinal, event.id)
            if sequence is not None:
                known = self._known.get((receiver, sequence))
                moments = known.moments if known else self._moments_before(receiver, event)
                self._known.put((receiver, sequence), KnownTrace(context, attempt.policy.url, moments))
        return b"00-%032x-%016x-%02x" % (context.trace, span, context.flags)

    def _traceparent_of_batch(self, attempt: BatchAttempt) -> bytes:
        """The header of a POST of several events, which may belong to several traces.

        It has a trace of its own, with one span. Its events have their spans in their own traces, as without
        batches, and the spans of their deliveries link to that one.
        """
        receiver, url, sampled = attempt.receiver, attempt.policy.url, False
        first, last = attempt.sequences[0], attempt.sequences[-1]
        post = SpanName(*batch_span_ids(receiver, first, last, attempt.ordinal))
        for event, sequence in attempt.numbered:
            addressee = tenant_of(receiver) if event.source else receiver
            context = trace_context(addressee, event.id, event.traceparent, self._sampler)
            sampled |= context.is_sampled
            if context.is_sampled or self._failures:
                known = self._known.get((receiver, sequence))
                moments = known.moments if known else self._moments_before(receiver, event)
                posts = known.posts if known else ()
                posts = (*posts[1 - MOMENTS_MAX :], post)
                self._known.put((receiver, sequence), KnownTrace(context, url, moments, posts))
        return b"00-%032x-%016x-%02x" % (*post, SAMPLED_FLAG if sampled else 0)

    def export(self, entries: Sequence[Recorded]) -> None:
        """Export the spans of these facts, which the journal holds."""
        for entry in entries:
            fact = entry.fact
            if isinstance(fact, PARKING):
                self._note_parking(fact)
            if not self._known:
                continue
            match fact:
                case Delivered() | AttemptFailed() | Throttled():
                    self._posted(fact)
                    for event in fact.events:
                        self._attempted(fact, event)
                case DeadLettered():
                    for event in fact.events:
                        self._settled(fact, event)
                case Forgot() | Removed() | Missing() | Repaired():
                    # Some of these events are gone. An attempt at any other notes its trace again.
                    self._known.forget_receiver(fact.receiver, fact.next_sequence)
                case _:
                    pass  # Other facts are neither an attempt nor the end of a delivery.

    def forget_receivers(self, gone: Callable[[str], bool]) -> None:
        """Forget the events of these receivers, which have another owner from now on."""
        self._known.forget_receivers(gone)
        for receiver in [each for each in self._parked_at if gone(each)]:
            del self._parked_at[receiver]

    def routed(self, event: RoutedEvent) -> Callable[[], None] | None:
        """Make the span of an event whose copies are all stored; returns what exports it."""
        context = trace_context(event.tenant, event.id, event.traceparent, self._sampler)
        if not context.is_sampled:
            return None
        at = self._clock()

        def export() -> None:
            self._export(lambda: route_span(event, context, at))

        return export

    def _posted(self, fact: Delivered | AttemptFailed | Throttled) -> None:
        """Export the span of a POST with several events, if one of their traces is exported."""
        found = [(event, self._known.get((fact.receiver, event.sequence))) for event in fact.events]
        notes = [
            (event, note) for event, note in found
            if note is not None and note.posts and (note.context.is_sampled or not _at_once(fact))
        ]  # fmt: skip
        if notes:
            post, url = notes[0][1].posts[-1], notes[0][1].url
            deliveries = [delivery_name(fact.receiver, event, note.context) for event, note in notes]
            self._export(lambda: batch_span(fact, post, url, deliveries))

    def _note_parking(self, fact: Parked | Unparked | Removed) -> None:
        if not isinstance(fact, Parked):
            self._parked_at.pop(fact.receiver, None)
            return
        self._parked_at[fact.receiver] = fact.at
        if len(self._parked_at) > PARKED_MAX:
            del self._parked_at[next(iter(self._parked_at))]

    def _moments_before(self, receiver: str, event: Event) -> list[Moment]:
        """The moments of an event before its first attempt: it may have waited in the stream alone."""
        parked_at = self._parked_at.get(receiver)
        return [] if parked_at is None else [Moment("parked", max(parked_at, event.stored_at))]

    def _attempted(self, fact: Delivered | AttemptFailed | Throttled, event: Numbered) -> None:
        note = self._known.get((fact.receiver, event.sequence))
        if note is None:
            return
        context, url = note.context, note.url
        if (context.is_sampled or not _at_once(fact)) and self._export(
            lambda: attempt_span(fact, event, context, url)
        ):
            span = span_id(fact.receiver, event.sequence, fact.attempt, event.id)
            self.exemplars[0].add(Exemplar(fact.latency_ms / 1000, context.trace, span, fact.at))
        if isinstance(fact, Delivered):
            self._settled(fact, event)
        elif len(note.moments) < MOMENTS_MAX:
            note.moments.append(moment(fact))

    def _settled(self, fact: Delivered | DeadLettered, event: Numbered) -> None:
        note = self._known.pop((fact.receiver, event.sequence))
        if note is not None and (note.context.is_sampled or not _at_once(fact)):
            context, moments, posts = note.context, tuple(note.moments), note.posts
            exported = self._export(lambda: delivery_span(fact, event, context, moments, posts))
            if exported and isinstance(fact, Delivered):
                span = span_id(fact.receiver, event.sequence, DELIVERY_ORDINAL, event.id)
                age_s = max(fact.at - event.accepted_at, 0.0)
                self.exemplars[1].add(Exemplar(age_s, context.trace, span, fact.at))


def _at_once(fact: AttemptFailed | DeadLettered | Delivered | Throttled) -> bool:
    """True if the first attempt delivered the event. The fact says so, also to the owner after a takeover."""
    return isinstance(fact, Delivered) and fact.attempt == 1
