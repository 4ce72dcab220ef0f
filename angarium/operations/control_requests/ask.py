"""Asks the owner of a receiver: control requests, repeated while a shard is handed over."""

import asyncio
from typing import Any

import msgspec
from msgspec import Struct

from actors.errors import Unavailable
from actors.ids import split_receiver
from angarium.access import Access
from angarium.operations.failures import OperationError
from streams.nats.errors import NotPermitted

UNAVAILABLE_CODE = "unavailable"
"""The code of an answer that will change in a moment, for example while a shard changes hands."""
UNKNOWN_CODE = "unknown_receiver"
ASK_AGAIN_AFTER_S = 0.25
ANSWER_TIMEOUT_S = 5.0
"""Time for an answer that needs no attempt."""
ATTEMPT_TIMEOUT_S = 75.0
"""Time limit if an attempt is awaited: the receiver's timeout of at most a minute, and some more."""


async def ask(
    access: Access, verb: str, receiver: str, body: bytes = b"", *, timeout_s: float = ANSWER_TIMEOUT_S
) -> dict[str, Any]:
    """Ask the owner, repeatedly while the shard moves to another node; returns the answer without `ok`.

    Raises `OperationError` of the kinds unanswered, refused (by the owner) and not_allowed.
    """
    silence = OperationError(
        "unanswered",
        f"no node answered for {receiver}",
        remedy=": start one with angarium node (or angarium dev), or see angarium doctor",
    )
    subject = access.names.control(verb, *split_receiver(receiver))
    return await ask_subject(access, subject, body, timeout_s=timeout_s, silence=silence)


async def ask_subject(
    access: Access,
    subject: str,
    body: bytes = b"",
    *,
    timeout_s: float = ANSWER_TIMEOUT_S,
    silence: OperationError,
) -> dict[str, Any]:
    """Send a control request to a subject; like `ask`, with `silence` as the error for no answer."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while True:
        left_s = deadline - asyncio.get_running_loop().time()
        answer = await _ask_once(access, subject, body, left_s, silence)
        if answer.pop("ok"):
            return answer
        error = answer["error"]
        if error["code"] != UNAVAILABLE_CODE or left_s <= ASK_AGAIN_AFTER_S:
            raise _refused(error["message"], error["code"])
        await asyncio.sleep(ASK_AGAIN_AFTER_S)


def requested_by(access: Access) -> bytes:
    """The body of a request: the record of it says who asked."""
    return msgspec.json.encode({"by": access.by})


async def _ask_once(
    access: Access, subject: str, body: bytes, timeout_s: float, silence: OperationError
) -> dict[str, Any]:
    try:
        message = await access.js.request(subject, body, timeout_s)
    except NotPermitted as error:
        raise OperationError("not_allowed", str(error)) from None
    except Unavailable:
        raise silence from None
    answer: dict[str, Any] = msgspec.json.decode(message.data)
    return answer


def _refused(message: str, code: str) -> OperationError:
    """The refusal by an owner, which says after a colon with which command to create an unknown receiver."""
    if code != UNKNOWN_CODE:
        return OperationError("refused", message, code)
    text, colon, rest = message.partition(": ")
    return OperationError("refused", text, code, remedy=colon + rest)


class WaitingEvents(Struct, frozen=True):
    """The number of events that wait for a receiver; if no node could be asked, an upper bound."""

    count: int
    certain: bool

    def __str__(self) -> str:
        return f"{'' if self.certain else 'up to '}{self.count} event{'s' * (self.count != 1)}"


async def backlog(access: Access, receiver: str) -> WaitingEvents:
    """The owner's count of waiting events, or else the number of stored ones."""
    try:
        return WaitingEvents((await ask(access, "inspect", receiver))["backlog"], certain=True)
    except OperationError:
        stored = await access.js.subjects(access.names.deliveries, access.names.deliveries_to(receiver))
        return WaitingEvents(sum(stored.values()), certain=False)


async def until_gone(access: Access, receiver: str, *, timeout_s: float = ANSWER_TIMEOUT_S) -> bool:
    """Return once the owner has discarded the waiting events. False if it did not say so in time."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while (left_s := deadline - asyncio.get_running_loop().time()) > 0:
        try:
            await ask(access, "inspect", receiver, timeout_s=left_s)
        except OperationError as failed:
            return failed.code == UNKNOWN_CODE
        await asyncio.sleep(ASK_AGAIN_AFTER_S)
    return False
