"""The table of the demo: receivers as rows, the same live and at the end, and the verdict as lines."""

from collections import Counter
from collections.abc import Iterator, Sequence

import click

from angarium.demo.receivers import DemoReceiver
from angarium.demo.verdict import CheckedPromise

HEADINGS = ("receiver", "behaviour", "accepted", "requests", "answers")
BREACHES_SHOWN = 3


def row(receiver: DemoReceiver) -> tuple[str, ...]:
    """A receiver's results so far."""
    record = receiver.record
    answers = Counter("reset" if each.status is None else str(each.status) for each in record.requests)
    return (
        record.name,
        receiver.role.about,
        f"{len(record.accepted)} of {len(record.published)}",
        str(len(record.requests)),
        "  ".join(f"{count} × {answer}" for answer, count in sorted(answers.items()))
        or ("-" if receiver.listening else "refuses connections"),
    )


def happening(elapsed_s: float, what: str) -> str:
    """Show one line of what happens."""
    return f"{elapsed_s:5.1f} s  {what}"


def verdict(findings: Sequence[CheckedPromise]) -> Iterator[str]:
    """One line per promise, and below a broken one what broke it."""
    width = max(len(finding.promise) for finding in findings)
    for finding in findings:
        word = click.style("kept  ", fg="green") if finding.is_kept else click.style("BROKEN", fg="red")
        yield f"{word}  {finding.promise:{width}}  {finding.evidence}".rstrip()
        yield from (f"        {breach}" for breach in finding.breaches[:BREACHES_SHOWN])
        if (more := len(finding.breaches) - BREACHES_SHOWN) > 0:
            yield f"        and {more} more"
