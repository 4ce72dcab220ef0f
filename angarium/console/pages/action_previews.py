"""Previews of actions on a receiver: each says in sentences, with numbers, what it will do."""

import re
from typing import Literal, assert_never

from msgspec import Struct

from angarium.console.rendering.rates import burst_of, configured_rates
from angarium.console.sessions import ConsoleSession
from angarium.operations.control_requests.inspection import StateDocument
from angarium.operations.control_requests.operator_actions import forgotten_words
from angarium.quantities import count_text

Action = Literal["pause", "resume", "ping", "verify", "skip", "forget"]
MORE_MAX, MORE_FACTOR = 10, 1.1
"""Events beyond those shown that may be discarded, too: a few arrive while a person reads."""
_NUMBERS = re.compile(r"([0-9]{1,15}) ([0-9]{1,15})\Z")


class ActionButton(Struct, frozen=True):
    """An action, the word on its button, and its effect in a sentence.

    `is_final`: it cannot be undone, so the name of the receiver has to be written to confirm it.
    """

    action: Action
    label: str
    effect: str
    is_dangerous: bool = False
    is_final: bool = False


class ActionPreview(Struct, frozen=True):
    """An action on a receiver as it is now.

    - `sentences`: what it will do; `confirm` is on the button.
    - `confirmed_facts`: the facts that are confirmed with it; the form sends them back.
    - `is_possible`: there is something to do.
    """

    button: ActionButton
    sentences: list[str]
    confirm: str
    confirmed_facts: str = ""
    is_possible: bool = True


ACTION_BUTTONS: dict[str, ActionButton] = {
    each.action: each
    for each in (
        ActionButton("pause", "Pause", "Its events wait until it is resumed."),
        ActionButton("resume", "Resume", "Ends a pause, disablement, backoff, throttling and a learnt pace."),
        ActionButton("ping", "Ping", "Posts one event of the type angarium.ping, without a number."),
        ActionButton("verify", "Verify", "Asks the receiver to prove itself now."),
        ActionButton("skip", "Skip one event", "Makes the oldest event a dead letter.", is_dangerous=True),
        ActionButton(
            "forget",
            "Discard what waits",
            "Discards all waiting events for good.",
            is_dangerous=True,
            is_final=True,
        ),
    )
}


def available_actions(session: ConsoleSession, live: StateDocument | None) -> list[ActionButton]:
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
    return [each for each in ACTION_BUTTONS.values() if not useless.get(each.action, False)]


def preview_of(button: ActionButton, live: StateDocument) -> ActionPreview:
    """The action as it would act on a receiver in that state."""
    waits = live["backlog"]
    match button.action:
        case "pause":
            return ActionPreview(button, [f"{_wait(waits)} now. New events will wait, too."], "Pause it")
        case "resume":
            confirm = f"Resume, and send {count_text(waits, 'event')}" if waits else "Resume it"
            sentences = [f"{_wait(waits)}. {_sending(live)}."]
            return ActionPreview(button, sentences, confirm, str(waits))
        case "ping":
            asked = "One request goes to the receiver, also while it is paused. It takes a token of its rate."
            return ActionPreview(button, [asked], "Send the ping")
        case "verify":
            asked = f"One request asks for the proof. {_wait(waits)} until there is one."
            return ActionPreview(button, [asked], "Ask for the proof")
        case "skip":
            return _preview_of_skip(button, live)
        case "forget":
            sentences = [
                f"{count_text(waits, 'event')} will be discarded, never to be sent to this receiver.",
                "Numbering continues after the gap, and failures are cleared. This cannot be undone.",
            ]
            confirm = f"Discard {count_text(waits, 'event')}"
            confirmed_facts = f"{waits} {_oldest_number(live)}"
            return ActionPreview(button, sentences, confirm, confirmed_facts, is_possible=waits > 0)
        case _:
            assert_never(button.action)


def _sending(live: StateDocument) -> str:
    """The sending after a resume, which forgets what was learnt."""
    rates, pace = configured_rates(live), live.get("pace")
    if not pace:
        return f"Sending begins at once, at most {rates}" if rates else "Sending begins at once"
    forgotten = forgotten_words(pace).capitalize()
    if not rates:
        return f"{forgotten}: events are sent as fast as it answers"
    return f"{forgotten}: up to {rates} are sent, {burst_of(live)} of them at once"


def _preview_of_skip(button: ActionButton, live: StateDocument) -> ActionPreview:
    head = live.get("head")
    if head is None:
        nothing = "No event waits, so there is none to skip."
        return ActionPreview(button, [nothing], "Skip", is_possible=False)
    sentences = [
        f"1 event, {head['event_id']} with the number {head['sequence']}, becomes a dead letter.",
        f"It can be sent again from there. {_wait(live['backlog'] - 1)} behind it.",
    ]
    return ActionPreview(button, sentences, "Skip 1 event", f"{head['sequence']} {head['event_id']}")


def discarded_max(confirmed_facts: str, now: str) -> int:
    """The largest number of events that a person agreed to discard, by the facts confirmed and those of now.

    Events that have gone since were not agreed to be replaced by others.
    """
    (count, oldest), (_, oldest_now) = _numbers(confirmed_facts), _numbers(now)
    return with_some_more(count - max(0, oldest_now - oldest))


def with_some_more(count: int) -> int:
    """Adds to a count of events those that may have come while a person was reading; none if none is left."""
    return max(count + MORE_MAX, int(count * MORE_FACTOR)) if count > 0 else 0


def is_unchanged(now: ActionPreview, confirmed_facts: str) -> bool:
    """True if the facts that a preview showed are close enough to those of now."""
    match now.button.action:
        case "forget":
            return _numbers(now.confirmed_facts)[0] <= discarded_max(confirmed_facts, now.confirmed_facts)
        case "resume":
            return int(now.confirmed_facts) <= max(
                MORE_MAX, with_some_more(_numbers(f"{confirmed_facts} 0")[0])
            )
        case _:
            return now.confirmed_facts == confirmed_facts


def _numbers(confirmed_facts: str) -> tuple[int, int]:
    """The number of events and that of the oldest one, as a form sent them; zeros if it did not."""
    found = _NUMBERS.match(confirmed_facts)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _oldest_number(live: StateDocument) -> int:
    """The number of the oldest event, or the one that it will get."""
    head = live.get("head")
    found: int = live["next_sequence"] if head is None else head["sequence"]
    return found


def _wait(count: int) -> str:
    if not count:
        return "No event waits"
    return "1 event waits" if count == 1 else f"{count_text(count, 'event')} wait"
