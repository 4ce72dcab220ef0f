"""Previews of actions on a receiver: each says in sentences, with numbers, what it will do."""

import re
from typing import Literal, assert_never

from msgspec import Struct

from angarium.console.sessions import ConsoleSession
from angarium.console.showing.wording import events
from angarium.operations.control_requests.inspection import StateDocument

Action = Literal["pause", "resume", "ping", "verify", "skip", "forget"]
CHANGED = "Nothing was done: it is no longer what you saw. Look again."
MORE_MAX, MORE_FACTOR = 10, 1.1
"""Events beyond those shown that may be discarded, too: a few arrive while a person reads."""
_NUMBERS = re.compile(r"([0-9]{1,15}) ([0-9]{1,15})\Z")


class Offer(Struct, frozen=True):
    """An action, the word on its button, and what it does, in a sentence."""

    action: Action
    label: str
    does: str
    is_dangerous: bool = False


class ActionPreview(Struct, frozen=True):
    """An action on a receiver as it is now.

    - `sentences`: what it will do; `confirm` is on the button.
    - `seen`: what it is about, which the form sends back.
    - `is_possible`: there is something to do.
    """

    offer: Offer
    sentences: list[str]
    confirm: str
    seen: str = ""
    is_possible: bool = True


OFFERS: dict[str, Offer] = {
    each.action: each
    for each in (
        Offer("pause", "Pause", "Its events wait until it is resumed."),
        Offer("resume", "Resume", "Ends a pause, disablement, backoff, throttling and a learnt pace."),
        Offer("ping", "Ping", "Posts one event of the type angarium.ping, without a number."),
        Offer("verify", "Verify", "Asks the receiver to prove itself now."),
        Offer("skip", "Skip one event", "Makes the oldest event a dead letter.", is_dangerous=True),
        Offer("forget", "Discard what waits", "Discards all waiting events for good.", is_dangerous=True),
    )
}


def offered(session: ConsoleSession, live: StateDocument | None) -> list[Offer]:
    """The actions that make sense now, for a session that may do them."""
    if live is None or not session.may("manage"):
        return []
    waits, phase = bool(live["backlog"]), live["phase"]
    useless = {
        "pause": phase == "paused",
        "resume": phase in ("idle", "active") and not live.get("pace"),
        "verify": not live.get("handshake"),
        "skip": not waits,
        "forget": not waits,
    }
    return [each for each in OFFERS.values() if not useless.get(each.action, False)]


def previewed(offer: Offer, live: StateDocument) -> ActionPreview:
    """The action as it would act on a receiver in that state."""
    waits = live["backlog"]
    match offer.action:
        case "pause":
            return ActionPreview(offer, [f"{_wait(waits)} now. Those that come will wait, too."], "Pause it")
        case "resume":
            bucket = live.get("bucket")
            rate = f", at most {bucket['effective_limit']:g} per {bucket['per']}" if bucket else ""
            confirm = f"Resume, and send {events(waits)}" if waits else "Resume it"
            sentences = [f"{_wait(waits)}. Sending begins at once{rate}."]
            return ActionPreview(offer, sentences, confirm, str(waits))
        case "ping":
            asked = "One request goes to the receiver, also while it is paused. It takes a token of its rate."
            return ActionPreview(offer, [asked], "Send the ping")
        case "verify":
            asked = f"One request asks for the proof. {_wait(waits)} until there is one."
            return ActionPreview(offer, [asked], "Ask for the proof")
        case "skip":
            return _skip_previewed(offer, live)
        case "forget":
            sentences = [
                f"{events(waits)} will be discarded, never to be sent to this receiver.",
                "Numbers go on after the gap, and failures are cleared. This cannot be undone.",
            ]
            confirm = f"Discard {events(waits)}"
            seen = f"{waits} {_oldest_number(live)}"
            return ActionPreview(offer, sentences, confirm, seen, is_possible=waits > 0)
        case _:
            assert_never(offer.action)


def _skip_previewed(offer: Offer, live: StateDocument) -> ActionPreview:
    head = live.get("head")
    if head is None:
        nothing = "No event waits, so there is none to skip."
        return ActionPreview(offer, [nothing], "Skip", is_possible=False)
    sentences = [
        f"1 event, {head['event_id']} with the number {head['sequence']}, becomes a dead letter.",
        f"It can be sent again from there. {_wait(live['backlog'] - 1)} behind it.",
    ]
    return ActionPreview(offer, sentences, "Skip 1 event", f"{head['sequence']} {head['event_id']}")


def discarded_max(seen: str, now: str) -> int:
    """The largest number of events that a person agreed to discard, by what was seen then and is there now.

    Events that have gone since were not agreed to be replaced by others.
    """
    (count, oldest), (_, oldest_now) = _numbers(seen), _numbers(now)
    return with_some_more(count - max(0, oldest_now - oldest))


def with_some_more(count: int) -> int:
    """Adds to a count of events those that may have come while a person was reading; none if none is left."""
    return max(count + MORE_MAX, int(count * MORE_FACTOR)) if count > 0 else 0


def is_still_meant(now: ActionPreview, seen: str) -> bool:
    """True if what a preview showed is close enough to what is there now."""
    match now.offer.action:
        case "forget":
            return _numbers(now.seen)[0] <= discarded_max(seen, now.seen)
        case "resume":
            return int(now.seen) <= max(MORE_MAX, with_some_more(_numbers(f"{seen} 0")[0]))
        case _:
            return now.seen == seen


def _numbers(seen: str) -> tuple[int, int]:
    """The number of events and that of the oldest one, as a form sent them; zeros if it did not."""
    found = _NUMBERS.match(seen)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _oldest_number(live: StateDocument) -> int:
    """The number of the oldest event, or the one that it will get."""
    head = live.get("head")
    found: int = live["next_sequence"] if head is None else head["sequence"]
    return found


def _wait(count: int) -> str:
    return "1 event waits" if count == 1 else f"{events(count)} wait" if count else "No event waits"
