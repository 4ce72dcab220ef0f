"""`angarium event`: one event's journey over all receivers, from the ledger, and where it still waits."""

import time
from typing import TYPE_CHECKING, Any

import click
import msgspec

from actors.ids import tenant_of
from actors.times_as_text import age_text, instant_text
from angarium.cli.invocation import options
from angarium.cli.invocation.remedies import remedy_text
from angarium.terminal import output
from angarium.terminal.run import run

if TYPE_CHECKING:
    from angarium.operations.control_requests.held_receivers import HeldReceiver
    from angarium.operations.events.search import ErasedEvent, EventSearch, WaitingDelivery
    from angarium.operations.events.timed_traces import DueEvent
    from angarium.operations.failures import NotDone
    from angarium.operations.ledger_queries.journey import Journey
    from angarium.settings import Settings

CONTINUED_INDENT = 4
ANSWER_MAX = 200
"""Characters of an answer that are shown; `--json` has all that is kept."""


@click.command("event", short_help="Show what happened to an event, and where it still waits.")
@click.argument("event_id", metavar="ID")
@click.option(
    "--tenant", metavar="TENANT", help="Only receivers of this tenant; other tenants may use the same id."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@options.settings_flags("ledger", *options.CONNECTION)
def event(event_id: str, tenant: str | None, as_json: bool, **given: Any) -> None:
    """Show which receivers got an event, with its number, its attempts, and how it ended.

    The attempts are from the ledger; of more than 100 the first and the last 50 are shown. For receivers that
    have not started on the event, and for replays and redrives of it, NATS is asked where it waits: its
    place, why, and when its turn comes. The exit status is 1 if no receiver is listed, and it was not erased
    or cancelled, does not wait to be routed or for its time, and is no dead letter either.
    """
    if not event_id:
        raise click.UsageError("the id of the event is empty")
    from angarium.cli.invocation.perform import CommandFailed, result_of
    from angarium.cli.ledger_queries import attempt_table
    from angarium.cli.ledger_queries.ask_ledger import show_notes
    from angarium.operations.failures import NotDone

    recorded, search, held, letters = run(_look_up(options.settings_of(given), event_id, tenant))
    found = result_of(recorded)
    if isinstance(search, NotDone):
        if search.kind == "invalid":
            result_of(search)
        waiting, erased, due, unknown = [], [], [], [f"where it waits is not known: {search.sentence}"]
    else:
        waiting, erased, due, unknown = search.waiting, search.erased, search.due, search.notes
    elsewhere = not isinstance(search, NotDone) and (
        search.unrouted or search.timed or search.letter is not None
    )
    if not (found.deliveries or waiting or erased or elsewhere):
        reasons, intro = [*unknown, *found.ledger.notes], f"no attempt of the event {event_id} is recorded"
        if not isinstance(search, NotDone):
            reasons, intro = [search.why_none, *reasons], search.why_unknown(event_id)
        raise CommandFailed(f"{intro}: {'; '.join(reasons)}")
    if as_json:
        document = msgspec.to_builtins(found)
        if isinstance(search, NotDone):
            document |= {"waiting": None, "why_none": None, "letter": None, "erased": None, "due": None}
        else:
            why_none, letter = search.why_none or None, search.letter
            document |= {"waiting": waiting, "why_none": why_none, "letter": letter, "erased": erased}
            document["due"] = due
        output.say_json(document)
        return
    if elsewhere and not isinstance(search, NotDone):
        shown = "" if search.letter is None else f"; to see it: angarium dead show {search.letter}"
        output.say_wrapped(output.visible(f"{event_id}: {search.why_none}{shown}"), indent=CONTINUED_INDENT)
    for delivery in found.deliveries:
        letter = letters.get((delivery["receiver"], delivery["sequence"]))
        line = headline(delivery, held.get(delivery["receiver"]), letter)
        output.say_wrapped(output.visible(line), indent=CONTINUED_INDENT)
        left_out = delivery["attempts_total"] - len(delivery["attempts"])
        for place, each in enumerate(delivery["attempts"]):
            if left_out > 0 and place == len(delivery["attempts"]) // 2:
                output.say(f"  … {left_out} more (angarium attempts {output.visible(delivery['receiver'])})")
            took = f"{each['latency_ms']:.0f} ms"
            tried = f"attempt {each['attempt']}: {output.visible(attempt_table.outcome(each))}, {took}"
            output.say_wrapped(tried, f"  {each['at']}  ")
            if each["answer"]:
                output.say_wrapped(output.first_of(each["answer"], ANSWER_MAX), "    answered: ")
        for each in delivery["repeats"]:
            output.say_wrapped(duplicate_text(delivery, each), f"  {each['at']}  ")
    for was_due in due:
        output.say_wrapped(output.visible(due_text(event_id, was_due)), indent=CONTINUED_INDENT)
    for waits in waiting:
        output.say_wrapped(output.visible(place_text(waits)), indent=CONTINUED_INDENT)
    for each in erased:
        output.say_wrapped(output.visible(erased_text(event_id, each)), indent=CONTINUED_INDENT)
    for note in unknown:
        output.note(f"note: {note}")
    show_notes(found.ledger)


async def _look_up(
    settings: "Settings", event_id: str, tenant: str | None
) -> "tuple[Journey | NotDone, EventSearch | NotDone, dict[str, HeldReceiver], dict[tuple[str, int], int]]":
    """Look up an event in the ledger, and in the streams, what holds its receivers, and its dead letters."""
    from actors.errors import AngariumError
    from angarium.access import Access, with_access
    from angarium.operations.control_requests.held_receivers import held_receivers
    from angarium.operations.dead_letters.find_for_event import letters_of
    from angarium.operations.events.search import search_event
    from angarium.operations.failures import NotDone, not_done
    from angarium.operations.ledger_queries.journey import recorded_journey
    from angarium.operations.ledger_queries.ledger_access import open_ledger
    from angarium.operations.missing_streams import explained

    found = await open_ledger(settings, lambda ledger: recorded_journey(ledger, event_id, tenant))
    if isinstance(found, NotDone):
        return found, found, {}, {}
    begun = {each["receiver"] for each in found.deliveries if each["state"] == "open"}
    tenants = {tenant_of(each) for each in found.recorded}
    among = tenant or (tenants.pop() if len(tenants) == 1 else None)

    dead = {each["receiver"] for each in found.deliveries if each["state"] == "dead"}

    async def ask(
        access: Access,
    ) -> "tuple[EventSearch | NotDone, dict[str, HeldReceiver], dict[tuple[str, int], int]]":
        why_unrecorded = found.ledger.why_unrecorded
        search = await search_event(access, event_id, among, found.recorded, why_unrecorded=why_unrecorded)
        if isinstance(search, NotDone):
            search = await explained(access, search)
        return search, await held_receivers(access, begun), await letters_of(access, event_id, dead)

    try:
        return found, *await with_access(settings, ask)
    except AngariumError as error:
        return found, not_done(error), {}, {}


def place_text(delivery: "WaitingDelivery") -> str:
    """An event that waits, in a line: `acme.billing: waits at place 2 of 3, …: backing off until …`."""
    place = f" at place {delivery.place} of {delivery.waiting}" if delivery.place else ""
    turn = "" if delivery.due_s is None else f", its turn comes in about {age_text(delivery.due_s)}"
    why = f"{delivery.why}{remedy_text(delivery.remedy, delivery.receiver)}"
    again = ", sent again" if delivery.again else ""
    return f"{delivery.receiver}: waits{place}{turn}, stored {delivery.stored_at}{again}: {why}"


def duplicate_text(delivery: dict[str, Any], duplicate: dict[str, Any]) -> str:
    """A message that was dropped, in a line."""
    position, number = duplicate["position"], delivery["sequence"]
    return f"message {position} of the deliveries has the same id: dropped as a duplicate of #{number}"


def due_text(event_id: str, due: "DueEvent") -> str:
    """An event whose time has come, in a line: `order-9: was due 2026-…Z, accepted 2026-…Z, 0.3 s late`."""
    return f"{event_id}: was due {due.due_at}, accepted {due.accepted_at}, {due.late_s:.1f} s late"


def erased_text(event_id: str, erased: "ErasedEvent") -> str:
    """The erasure of an event, in a line: `order-18: erased 2026-…Z, asked by root@vm`."""
    if erased.at is None:
        return f"{event_id}: its erasure, asked by {erased.by}, is under way"
    return f"{event_id}: erased {erased.at}, asked by {erased.by}"


def headline(delivery: dict[str, Any], held: "HeldReceiver | None" = None, letter: int | None = None) -> str:
    """A delivery in a line: `acme.billing #17 (order.created): stored 2026-…, delivered …`.

    `held`: why its receiver gets nothing now; that is said of a delivery that is not settled. `letter`: the
    number of its dead letter.
    """
    kind = f" ({delivery['type']})" if delivery["type"] else ""
    name = f"{delivery['receiver']} #{delivery['sequence']}{kind}"
    again = ", sent again" if delivery["again"] else ""
    waited = delivery["published_at"] != delivery["stored_at"]
    published = f"published {delivery['published_at']}, " if waited else ""
    stored = f"{published}stored {delivery['stored_at']}{again}"
    ended = delivery["ended_at"]
    match delivery["state"]:
        case "open" if held is not None:
            why = f"{held.why}{remedy_text(held.remedy, delivery['receiver'])}"
            return f"{name}: waits for {_following(delivery)}, {stored}: {why}"
        case "open":
            return f"{name}: {_waiting(delivery)}, {stored}"
        case "unknown":
            return f"{name}: it is not known how it ended, {stored}"
        case "dead" if letter is not None:
            dead = f"dead letter {letter} ({delivery['reason']}) {ended}"
            return f"{name}: {stored}, {dead}; to send it again: angarium dead redrive {letter}"
        case "dead":
            return f"{name}: {stored}, dead letter ({delivery['reason']}) {ended}"
        case "discarded" if delivery["reason"]:
            return f"{name}: {stored}, discarded ({delivery['reason']}) {ended}"
        case state:
            return f"{name}: {stored}, {state} {ended}"


def _waiting(delivery: dict[str, Any]) -> str:
    """Say why an unsettled event waits, and where to look."""
    look = f"angarium inspect {delivery['receiver']} shows what it waits for"
    following = _following(delivery)
    due = delivery["attempts"][-1]["next_at"] if delivery["attempts"] else None
    if due is not None and due <= instant_text(time.time()):
        return f"{following} is due or under way ({look})"
    return f"waits for {following}{f', due {due}' if due else ''} ({look})"


def _following(delivery: dict[str, Any]) -> str:
    """The attempt of an unsettled event that comes next."""
    attempts = delivery["attempts"]
    return f"attempt {attempts[-1]['attempt'] + 1}" if attempts else "its first attempt"
