"""Shows a dead letter with the body that its receiver would have got, never with the original of that."""

import asyncio

from msgspec import Struct

from actors.configuration.parsing import parse
from actors.configuration.policy import Policy
from actors.configuration.secret_places import is_sealed
from actors.configuration.transform import Unshapeable, key_hash, shaping_of, transform_hash
from actors.errors import InvalidName, InvalidPolicy
from actors.ids import split_receiver
from angarium.access import Access
from angarium.delivery.shaping.shape import shape
from angarium.operations.dead_letters.find import find_letter
from angarium.operations.failures import NotDone, operation
from streams.dead_letters.letters import Letter
from streams.nats.wire_names import EVENT_REGION

BODY_GONE = "the body was gone before the dead letter was stored"
OTHER_TRANSFORM = "the body is not shown: its receiver had another transform then"
SEALED_KEY = "the body is not shown: the key of its pseudonyms is sealed, and no key here opens it"
UNREADABLE = (
    "the body is not shown: the configuration of its receiver is invalid, and may have had a transform"
)


class ShownLetter(Struct, frozen=True):
    """A dead letter, and its body as it may be shown; None: it may not, and `why` says why."""

    letter: Letter
    body: bytes | None
    why: str = ""


@operation
async def shown_letter(access: Access, position: int, *, tenant: str | None = None) -> ShownLetter | NotDone:
    """The letter at that position; with `tenant`, only if it is that tenant's. Fails as not_found."""
    letter = await find_letter(access, position, tenant=tenant)
    if isinstance(letter, NotDone):
        return letter
    if letter.is_body_gone:
        return ShownLetter(letter, None, BODY_GONE)
    try:
        policy = await _policy_of(access, letter.receiver)
    except InvalidPolicy:
        return ShownLetter(letter, None, UNREADABLE)
    return await asyncio.to_thread(_shown, letter, policy)


async def _policy_of(access: Access, receiver: str) -> Policy | None:
    """The receiver's configuration; None if there is no such receiver. Raises InvalidPolicy."""
    try:
        split_receiver(receiver)
    except InvalidName:
        return None  # A producer may publish to an impossible name.
    found = await access.configurations.get(receiver)
    return None if found is None else parse(found.raw, strict=False)[0]


def _shown(letter: Letter, policy: Policy | None) -> ShownLetter:
    transform = policy.transform if policy else None
    _, _, letter_hash = letter.transform.partition(" ")
    if policy is None or transform is None:
        return (
            ShownLetter(letter, None, OTHER_TRANSFORM)
            if letter.transform
            else ShownLetter(letter, letter.body)
        )
    if transform.pseudonymize and is_sealed(policy.pseudonym_key):
        return ShownLetter(letter, None, SEALED_KEY)
    if letter.transform and letter_hash != transform_hash(transform, key_hash(policy.pseudonym_key)):
        return ShownLetter(letter, None, OTHER_TRANSFORM)
    shaping = shaping_of(transform, policy.pseudonym_key)
    body = shape(letter.body, letter.headers.get(EVENT_REGION, ""), shaping)
    if isinstance(body, Unshapeable):
        return ShownLetter(letter, None, f"the body is not shown: {body.why}, so it cannot be shaped")
    return ShownLetter(letter, body)
