"""The questions before waiting events are discarded, and before a receiver is removed."""

from collections.abc import Callable

import click
import pytest

from angarium.cli.receivers.receiver import may_discard, may_remove
from angarium.operations.control_requests.ask import WaitingEvents
from angarium.terminal import output

NOTHING, ONE, TWO = (WaitingEvents(count, certain=True) for count in range(3))


@pytest.mark.parametrize(
    ("consent", "waiting", "question"),
    [
        (may_remove, NOTHING, "remove acme.x?"),
        (may_remove, ONE, "remove acme.x, and discard 1 event waiting for it?"),
        (may_remove, TWO, "remove acme.x, and discard 2 events waiting for it?"),
        (may_discard, ONE, "discard 1 event waiting for acme.x?"),
        (may_discard, TWO, "discard 2 events waiting for acme.x?"),
    ],
)
def test_a_person_is_asked_unless_yes_was_given(
    monkeypatch: pytest.MonkeyPatch,
    consent: Callable[..., Callable[[WaitingEvents], bool]],
    waiting: WaitingEvents,
    question: str,
) -> None:
    asked: list[str] = []

    def no(text: str, *, err: bool) -> bool:
        asked.append(text)
        return False

    monkeypatch.setattr(click, "confirm", no)
    monkeypatch.setattr(output, "can_ask", lambda: True)
    assert not consent("acme.x", yes=False)(waiting)
    assert asked == [question]
    assert consent("acme.x", yes=True)(waiting)
    assert asked == [question]


@pytest.mark.parametrize(
    ("consent", "waiting", "refusal"),
    [
        (may_remove, NOTHING, "this removes acme.x: give --yes to confirm"),
        (may_remove, TWO, "this removes acme.x, and discards 2 events waiting for it: give --yes"),
        (may_discard, ONE, "this discards 1 event waiting for acme.x: give --yes to confirm"),
    ],
)
def test_without_a_terminal_nothing_is_done_without_yes(
    monkeypatch: pytest.MonkeyPatch,
    consent: Callable[..., Callable[[WaitingEvents], bool]],
    waiting: WaitingEvents,
    refusal: str,
) -> None:
    monkeypatch.setattr(output, "can_ask", lambda: False)
    with pytest.raises(click.UsageError) as refused:
        consent("acme.x", yes=False)(waiting)
    assert refusal in refused.value.message
