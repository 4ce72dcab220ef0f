"""Transforms: every attempt of an event has the body of its first recorded attempt, whatever was put.

A first attempt has the shape that the configuration of the attempt asks for. If its key of pseudonyms is
replaced, its pointers stay, with the present key; without one, nothing is sent. And no original is ever sent
whose first recorded attempt was shaped.
"""

from collections.abc import Callable

from msgspec import Struct

from actors.configuration.policy import Policy
from actors.configuration.transform import Shaping, shaping_of
from actors.machine import facts as f
from actors.machine.event import Event
from actors.machine.numbering import Numbered
from actors.machine.outcome import NotSent
from actors.ports import Attempt, BatchAttempt, EventShaping
from angarium.delivery.shaping.body_shaper import shape_bodies
from angarium.delivery.shaping.shape import shape


class _Sent(Struct, frozen=True):
    """A body that was sent, and how it was shaped; None: not at all."""

    body: object
    shaping: EventShaping


class Transforms:
    """The bodies of all events. `reshaped`: events whose transform is gone, as facts say it."""

    def __init__(self, fail: Callable[[str], None]) -> None:
        self._fail = fail
        self._last: dict[tuple[str, int], _Sent] = {}
        self._first: dict[tuple[str, int], _Sent] = {}
        self._numbered: set[tuple[str, int]] = set()
        self.reshaped: list[Numbered] = []

    def started(self, attempt: Attempt | BatchAttempt) -> None:
        """Judge the bodies of a POST whose first byte leaves now."""
        policy, events = attempt.policy, [event for event, number in attempt.numbered if number is not None]
        shaped = shape_bodies(events, attempt.shapings)
        if isinstance(shaped, NotSent):
            self._fail(f"{attempt.receiver}: a POST starts, and {shaped.why}")
            return
        for event, body, shaping in zip(
            events, (each.body for each in shaped), attempt.shapings or [None] * len(events), strict=True
        ):
            place = attempt.receiver, event.position
            first = self._first.get(place)
            if first is not None and first.body != event.body and body == event.body:
                self._fail(f"{attempt.receiver}: {event.position} is sent as published, against {first!r}")
            expected = None if first is None else _repeated(event, first, policy)
            if first is not None and body != expected:
                self._fail(f"{attempt.receiver}: {event.position} is sent as {body!r}, not {expected!r}")
            # An event may have got its number, and not been sent, under an earlier configuration.
            if first is None and place not in self._numbered and body != _shaped(event, policy):
                self._fail(
                    f"{attempt.receiver}: {event.position} is sent as {body!r}, against {policy.transform}"
                )
            self._last[place] = _Sent(body, shaping)

    def record(self, fact: f.AnyFact) -> None:
        """A fact that is in the journal."""
        match fact:
            case (
                f.EventsNumbered(receiver=receiver, events=events)
                | f.Started(receiver=receiver, events=events)
            ):
                self._numbered |= {(receiver, each.position) for each in events}
            case f.Delivered() | f.AttemptFailed() | f.Throttled():
                for each in fact.events:
                    place = fact.receiver, each.position
                    if (sent := self._last.get(place)) is not None:
                        self._first.setdefault(place, sent)
                    self._numbered.add(place)  # Its first attempt may not have come to the first byte.
                    if each.transform_gone:
                        self.reshaped.append(each)


def _repeated(event: Event, first: _Sent, policy: Policy) -> object:
    """The body of a later attempt: as the first was, with the present key; None: it must not be sent."""
    if not isinstance(first.shaping, Shaping) or not first.shaping.transform.pseudonymize:
        return first.body
    if policy.pseudonym_key is None:
        return None
    return shape(event.body, event.region, shaping_of(first.shaping.transform, policy.pseudonym_key))


def _shaped(event: Event, policy: Policy) -> object:
    if policy.transform is None:
        return event.body
    return shape(event.body, event.region, shaping_of(policy.transform, policy.pseudonym_key))
