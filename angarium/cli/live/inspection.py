"""`angarium inspect`: the live state of a receiver, from the node that owns it."""

from collections.abc import Iterable
from typing import Any

import click

from actors.times_as_text import age_text
from angarium.cli.invocation import names, options
from angarium.cli.invocation.perform import perform
from angarium.cli.invocation.remedies import remedy_text
from angarium.settings import Settings
from angarium.terminal import output


@click.command("inspect", short_help="Show the live state of a receiver.")
@names.receiver("receiver")
@click.option("--at", metavar="TIME", help="State at this time, from the ledger: 2h, 2026-01-31T12:00:00Z.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
@options.settings_flags(*options.CONNECTION, "ledger")
def inspect(receiver: str, at: str | None, as_json: bool, **given: Any) -> None:
    """Show the live state of a receiver: its phase and why, its numbers, its bucket, its last attempt.

    The node that owns the receiver answers, as it does to: nats req angarium.ctl.inspect.TENANT.NAME ''
    If NATS permits only angarium.ctl.status, the receiver's last answer is left out.

    With --at, the ledger answers: everything except members that only a node's memory has.
    """
    from angarium.operations.control_requests.inspection import inspect_with_unrouted

    settings = options.settings_of(given)
    if at is None:
        answer = perform(settings, lambda access: inspect_with_unrouted(access, receiver))
    else:
        answer = recorded_state(settings, receiver, at)
    if as_json:
        output.say_json(answer)
        return
    for line in lines(answer):
        output.say(line)


_STEPS = ("keep", "drop", "pseudonymize")
"""The steps of a transform, in their order."""


def recorded_state(settings: Settings, receiver: str, at: str) -> dict[str, Any]:
    """The state at a moment, as far as it follows from facts."""
    from angarium.cli.ledger_queries.ask_ledger import ask_ledger, past_ms, show_notes
    from angarium.operations.ledger_queries.state_at import state_at

    instant = past_ms("--at", at)
    answer = ask_ledger(settings, lambda ledger: state_at(ledger, receiver, instant))
    show_notes(answer.pop("ledger"))
    return answer


def lines(state: dict[str, Any]) -> list[str]:
    """The state for people: a headline with the reason, and the rest as names and values."""
    width, hidden = max(map(len, state)), {"receiver", "why", "remedy"}
    if not state.get("backlog"):
        hidden.add("unrouted")
    shown = [f"{state['receiver']}: {output.visible(headline(state))}"]
    for name, value in _in_order(state):
        if name in hidden or value in (None, [], {}):
            continue
        if name == "last_response" and _is_older(value, state.get("last_attempt")):
            continue
        shown.append(f"  {name:{width}}  {_value(name, value)}{_meaning(name, value)}")
    return shown


def _in_order(state: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    """The members as they are shown: `queued`, a part of the `backlog`, comes after it."""
    for name, value in state.items():
        if name != "queued" or "backlog" not in state:
            yield name, value
        if name == "backlog" and "queued" in state:
            yield "queued", state["queued"]


def headline(state: dict[str, Any]) -> str:
    """Says how much waits, why, and what to do; a node of an older version gives only the phase.

    If nothing waits, events of the tenant that wait to be routed explain it.
    """
    count, why = state.get("backlog"), state.get("why") or str(state["phase"]).replace("_", " ")
    remedy = remedy_text(state.get("remedy"), state["receiver"])
    if not count and "unrouted" in state:
        return f"{why}{remedy}; {state['unrouted']}"
    return f"{count} waiting, {why}{remedy}" if count else f"{why}{remedy}"


def _is_older(answer: Any, attempt: Any) -> bool:
    """True if the last attempt got no answer, or another one: its answer is not the last response."""
    return isinstance(attempt, dict) and attempt.get("status") != answer.get("status")


def _meaning(name: str, value: Any) -> str:
    """Explains a member beyond its name."""
    match name, value:
        case "backlog", _:
            return " (accepted and not settled)"
        case "queued", _:
            return " (of the backlog, in the node's memory)"
        case "parked", True:
            return " (events that are not queued are read from the stream when their turn comes)"
        case _:
            return ""


def _bucket(bucket: dict[str, Any]) -> str:
    """The tokens of a rate limit: `45 of 45 tokens; rate 500/minute, margin 0.9: 450/minute, burst 45`."""
    limit, burst, margin = f"{bucket['limit']:g}/{bucket['per']}", bucket["burst"], bucket.get("margin", 1)
    used = "" if margin == 1 else f", margin {margin:g}: {bucket['limit'] * margin:g}/{bucket['per']}"
    return f"{bucket['tokens']:g} of {burst} tokens; rate {limit}{used}, burst {burst}"


def _value(name: str, value: Any) -> str:
    match name, value:
        case "bucket", {"tokens": _, "limit": _, "per": _, "burst": _}:
            return "; also ".join(map(_bucket, (value, *value.get("others", ()))))
        case "head", {"sequence": number, "event_id": event_id, "age_s": age_s}:
            event = " ".join(filter(None, (f"#{number}", value.get("type"))))
            return f"{output.visible(event)}, {output.visible(event_id)}, {age_text(age_s)} old"
        case "last_attempt", {"at": at, "sequence": number, "attempt": attempt, "latency_ms": took_ms}:
            event = (
                f"#{number}, attempt {attempt}"
                if number is not None
                else str(value.get("kind")).replace("_", " ")
            )
            outcome = output.visible(str(value["error"] or value["status"]))
            return f"{event}: {outcome} after {took_ms:g} ms, {at}"
        case "transform", {"revision": revision, "open_otherwise": count}:
            steps = ", ".join(f"{each} {value[each]}" for each in _STEPS if value.get(each))
            others = f"; open events that keep another or none: {count}" if count else ""
            return f"{steps or 'no pointers'}, of revision {revision}{others}"
        case "alerts", dict(alerts):
            return ", ".join(f"{kind} since {at}" for kind, at in alerts.items())
        case "last_response", dict(answer):
            return f"{answer['status']} {output.first_of(answer.get('body', ''), 200)}".rstrip()
        case _, dict():
            return ", ".join(
                f"{key} {output.visible(str(each))}" for key, each in value.items() if each is not None
            )
        case _, list():
            return output.visible("; ".join(map(str, value)))
        case _:
            return output.visible(output.shown(value))
