"""Asks the owner of a receiver: control requests, with the patience that a hand-over needs."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from angarium.connecting import installation, open_jetstream
from angarium.operations.errors import NotAllowed, Refused, Unanswered
from angarium.settings import Settings
from streams.installation.topology import Names
from streams.nats.errors import NotPermitted, Unavailable
from streams.nats.jetstream import JetStream

PASSING = "unavailable"
"""The code of an answer that will be another one in a moment, such as while a shard changes hands."""
PAUSE_S = 0.25


async def ask(
    js: JetStream, names: Names, verb: str, receiver: str, *, timeout_s: float = 5.0
) -> dict[str, Any]:
    """Asks the owner; returns its answer without `ok`. Asks again while the shard moves to another node.

    Raises Unanswered where no node answers, Refused where the owner says no, and NotAllowed.
    """
    deadline = asyncio.get_running_loop().time() + timeout_s
    while True:
        left_s = deadline - asyncio.get_running_loop().time()
        answer = await _ask_once(js, names.control(verb, *receiver.split(".")), receiver, left_s)
        if answer.pop("ok"):
            return answer
        error = answer["error"]
        if error["code"] != PASSING or left_s <= PAUSE_S:
            raise Refused(error["code"], error["message"])
        await asyncio.sleep(PAUSE_S)


async def _ask_once(js: JetStream, subject: str, receiver: str, timeout_s: float) -> dict[str, Any]:
    try:
        message = await js.request(subject, b"", timeout_s)
    except NotPermitted as error:
        raise NotAllowed(str(error)) from None
    except Unavailable:
        raise Unanswered(
            f"no node answered for {receiver}: start one with angarium node (or angarium dev), "
            "or see angarium doctor"
        ) from None
    answer: dict[str, Any] = msgspec.json.decode(message.data)
    return answer


async def ask_alone(
    settings: Settings, verb: str, receiver: str, *, timeout_s: float = 5.0
) -> dict[str, Any]:
    """The same over a connection made for this one question."""
    async with open_jetstream(settings) as js:
        return await ask(js, installation(settings).names, verb, receiver, timeout_s=timeout_s)


async def state_of(settings: Settings, receiver: str) -> dict[str, Any]:
    """The live state of a receiver; without what it answered, where NATS permits our user no more."""
    try:
        return await ask_alone(settings, "inspect", receiver)
    except NotAllowed as refused:
        try:
            return await ask_alone(settings, "status", receiver)
        except NotAllowed:
            raise refused from None


class Waiting(Struct, frozen=True):
    """The number of events that wait for a receiver; where no node could be asked, the most that may."""

    count: int
    certain: bool

    def __str__(self) -> str:
        return f"{'' if self.certain else 'up to '}{self.count} event{'s' * (self.count != 1)}"


async def waiting(js: JetStream, names: Names, receiver: str) -> Waiting:
    """Ask the owner how much waits, else count what is stored."""
    try:
        return Waiting((await ask(js, names, "inspect", receiver))["backlog"], certain=True)
    except (NotAllowed, Refused, Unanswered):
        stored = await js.subjects(names.deliveries, names.deliveries_to(receiver))
        return Waiting(sum(stored.values()), certain=False)


async def until_gone(js: JetStream, names: Names, receiver: str, *, timeout_s: float = 5.0) -> bool:
    """Return once the owner has discarded what waited, on record. False where it has not said so in time."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while (left_s := deadline - asyncio.get_running_loop().time()) > 0:
        try:
            await ask(js, names, "inspect", receiver, timeout_s=left_s)
        except Refused as refused:
            return refused.code == "unknown_receiver"
        except (NotAllowed, Unanswered):
            return False
        await asyncio.sleep(PAUSE_S)
    return False


async def forget(
    settings: Settings, receiver: str, agreed: Callable[[Waiting], bool], *, timeout_s: float
) -> bool:
    """Discard what waits; `agreed` is asked with how much that is, if anything does. False: it was not."""
    async with open_jetstream(settings) as js:
        names = installation(settings).names
        found = await waiting(js, names, receiver)
        if found.count and not agreed(found):
            return False
        await ask(js, names, "forget", receiver, timeout_s=timeout_s)
        return True
