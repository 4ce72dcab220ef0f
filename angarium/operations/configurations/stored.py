"""Stored configurations: reads their members, and checks that a write was stored."""

from typing import Any

from actors.configuration.parsing import members_of
from actors.errors import InvalidPolicy
from angarium.operations.failures import OperationError
from streams.nats import answers
from streams.nats.errors import NotPermitted
from streams.nats.wire_names import WRONG_LAST_SEQUENCE


def readable_members(raw: bytes) -> dict[str, Any]:
    """The stored members; none if they are unreadable, since then there is nothing to lose."""
    try:
        return members_of(raw)
    except InvalidPolicy:
        return {}


def require_stored(name: str, answer: answers.Answer) -> answers.Stored:
    """The answer to a conditional write, if it says that it is stored.

    Raises `OperationError` and NotPermitted.
    """
    match answer:
        case answers.Stored():
            return answer
        case answers.Refused(code, _) if code == WRONG_LAST_SEQUENCE:
            raise OperationError(
                "conflict",
                f"{name} was changed at the same moment by another user; check it, then try again",
            )
        case answers.Refused(code, text):
            raise OperationError("refused", f"NATS refused it: {text} (JetStream error {code})", str(code))
        case answers.Forbidden(why):
            raise NotPermitted(why, final=True)
        case answers.Unanswered(why):
            raise OperationError(
                "unanswered",
                f"NATS did not confirm it ({why})",
                remedy=f"; check with angarium receiver get {name}",
            )


def not_found(name: str) -> OperationError:
    """The failure that there is no such receiver."""
    return OperationError(
        "not_found", f"there is no receiver {name}", remedy="; angarium receiver list shows all"
    )
