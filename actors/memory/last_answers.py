"""The answers to failed attempts: the text that is recorded and goes into the dead letter.

The facts of failed attempts carry this text, but the state does not: it would make every snapshot larger. So
the last texts are kept next to the state for the dead letters, and are lost with the memory of their owner.
"""

from collections.abc import Collection

from actors.configuration.credentials import credentials_of
from actors.configuration.policy import Policy
from actors.machine.outcome import Answered

TEXT_MAX = 1024
"""Bytes of an answer's body that are recorded, as text."""
ANSWERS_MAX = 16
"""Newest answers that are kept for one receiver; strict order needs one, and one for each unburied event."""

_UNPRINTABLE = dict.fromkeys({*range(32), *range(127, 160)} - {9, 10}, "\ufffd")


def failure_text(answer: Answered, policy: Policy) -> str:
    """The beginning of the answer's body, without the credentials in `policy`.

    Control characters are replaced: a terminal must not obey them, and some databases do not store them.
    """
    text = answer.body[:TEXT_MAX].decode("utf-8", "replace").translate(_UNPRINTABLE)
    return credentials_of(policy).hide(text)[:TEXT_MAX]


class LastAnswers:
    """The texts of the last failures, by the positions of their events, the newest last."""

    __slots__ = ("texts",)

    def __init__(self) -> None:
        self.texts: dict[int, str] = {}

    def remember(self, position: int, text: str) -> None:
        """Keep the answer to an event's last attempt, if it has a text."""
        if position in self.texts:
            del self.texts[position]
        if text:
            self.texts[position] = text
            if len(self.texts) > ANSWERS_MAX:
                del self.texts[next(iter(self.texts))]

    def texts_of(self, positions: Collection[int]) -> dict[int, str]:
        """The texts for those of these events whose text is kept."""
        return {position: self.texts[position] for position in positions if position in self.texts}

    def forget(self, positions: Collection[int]) -> None:
        """Drop the texts for events that are buried."""
        for position in positions:
            self.texts.pop(position, None)
