"""The members of a receiver's configuration that have a flag with one value, as data; and the regions.

The values are checked together with the whole configuration, like any other one.
"""

from typing import Any

import click

SECRET_KINDS = ("hmac-sha256", "hmac-sha512", "ed25519")
"""The algorithms of secrets."""
MEMBERS: tuple[tuple[str, str, Any, str], ...] = (
    ("--url", "url", str, "URL that events are posted to."),
    (
        "--order",
        "order",
        click.Choice(["strict", "relaxed"]),
        "strict: one attempt in flight; relaxed: several.",
    ),
    ("--concurrency", "concurrency", int, "Attempts in flight in relaxed order, 1 to 256."),
    ("--batch-max-events", "batch.max_events", int, "Send up to so many events in one POST, 1 to 256."),
    ("--batch-max-bytes", "batch.max_bytes", int, "Bytes of their bodies; a larger event goes alone."),
    ("--batch-linger-s", "batch.linger_s", float, "How long the oldest event waits for more, 0 to 60."),
    ("--timeout-s", "timeout_s", float, "Time limit of an attempt, until the answer's headers are complete."),
    ("--base-s", "retry.base_s", float, "Longest delay before the first retry; it doubles with each retry."),
    ("--cap-s", "retry.cap_s", float, "Longest delay before any retry."),
    ("--max-age-s", "retry.max_age_s", float, "Age at which an event becomes a dead letter."),
    (
        "--max-attempts",
        "retry.max_attempts",
        int,
        "Attempts before an event becomes a dead letter; 0: no limit.",
    ),
    (
        "--rejected-attempts",
        "retry.rejected_attempts",
        int,
        "Attempts for an event that the receiver rejects (400, 422, …).",
    ),
    (
        "--offline-after-s",
        "offline.after_s",
        float,
        "Time without a success after which the receiver is offline.",
    ),
    (
        "--disable-after-s",
        "offline.disable_after_s",
        float,
        "Time without a success after which the receiver is disabled.",
    ),
    ("--dedup-window", "dedup_window", int, "Number of event ids to remember, to drop duplicates."),
    (
        "--backlog-max",
        "backlog_max",
        int,
        "Number of events that may wait; the oldest beyond it become dead letters.",
    ),
    (
        "--format",
        "format",
        click.Choice(["raw", "envelope", "cloudevents", "cloudevents-structured"]),
        "raw: the body as published; envelope: JSON with its number, id, type and time.",
    ),
    (
        "--handshake",
        "handshake",
        click.Choice(["none", "hmac", "cloudevents"]),
        "Proof that the receiver gives before it gets events.",
    ),
    ("--proxy", "proxy", str, "Profile of the nodes for the proxy."),
    ("--tls", "tls", str, "Profile of the nodes for client certificate and authorities."),
    ("--filter", "filter", str, "Only events with a body for which this JMESPath is true: total > `100`."),
    (
        "--rate",
        "rate",
        str,
        "Attempts a second, minute or hour: 10/second, or several such as 10/s,500/min (repeatable).",
    ),
    ("--burst", "burst", int, "Number of attempts that may start at once."),
    ("--margin", "margin", float, "Share of each --rate that is used, 0.1 to 1."),
)
"""Flag, member (`rate`, `burst` and `margin` are one), kind, and help text."""


def parameter(member: str) -> str:
    """The keyword under which click passes the flag of a member."""
    return member.replace(".", "__")


def flags(command: Any) -> Any:
    """Gives a command a flag for each, and one for the regions."""
    command = click.option(
        "--adaptive", is_flag=True, is_eager=True, hidden=True, expose_value=False, callback=_adaptive_as_json
    )(command)
    region = "Only events of this region, or of none (repeatable; replaces all)."
    command = click.option("--region", "regions", multiple=True, metavar="LABEL", help=region)(command)
    for flag, member, kind, text in reversed(MEMBERS):
        more: dict[str, Any] = {"multiple": True, "callback": _joined} if member == "rate" else {}
        command = click.option(flag, parameter(member), type=kind, help=text, **more)(command)
    return command


def _joined(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> str | None:
    """The rates of a flag that was given several times, as if it had named them all at once."""
    return ",".join(values) if values else None


def _adaptive_as_json(_context: click.Context, _parameter: click.Parameter, given: bool) -> None:
    """Say how the member without a flag is written, for click would suggest another flag."""
    if given:
        raise click.UsageError("there is no --adaptive; write it as JSON, with angarium receiver edit")
