"""Tries the transform of a receiver, or another one, on the last events that it would get; sends nothing."""

import asyncio
import secrets
from functools import partial
from typing import Literal

from msgspec import Struct

from actors.configuration.encoded_keys import KEY_BYTES_MIN
from actors.configuration.secret_places import is_sealed
from actors.configuration.transform import (
    Shaping,
    Transform,
    Unshapeable,
    shaping_of,
    transform_problems,
)
from actors.errors import BadInput
from actors.ids import split_receiver, tenant_of
from actors.machine.event import Event
from actors.times_as_text import instant_text
from angarium.access import Access
from angarium.delivery.shaping.shape import shape
from angarium.operations.configurations.trials.filter_trial import subscribes, usable_policy
from angarium.operations.failures import operation
from streams.observation.newest_events import newest_events

EVENTS_MAX = 100
EVENTS_DEFAULT = 10


class ShapedEvent(Struct, frozen=True, kw_only=True):
    """An event, and its body as the receiver would get it; null if it cannot be shaped, and `why`."""

    position: int
    id: str
    type: str
    stored_at: str
    body: str | None
    why: str = ""


class TransformTrial(Struct, frozen=True, kw_only=True):
    """The shaped bodies of the last events that a receiver subscribes to, the oldest first.

    The filter of the receiver is not asked. `key`: `own` if pseudonyms are those that it would get, and
    `made_up` if it has no key that can be used here. `cut`: older events were not looked at, since the search
    is bounded.
    """

    receiver: str
    transform: Transform
    key: Literal["own", "made_up"]
    cut: bool
    events: list[ShapedEvent]


@operation
async def try_transform(
    access: Access, receiver: str, transform: Transform | None = None, last: int = EVENTS_DEFAULT
) -> TransformTrial:
    """Shape the last events by the receiver's own transform, or by another one.

    Fails as not_found, as invalid if there is no transform or it is a wrong one, and as refused if the
    configuration is invalid.
    """
    split_receiver(receiver)
    if not 1 <= last <= EVENTS_MAX:
        raise BadInput(f"the number of events must be 1 to {EVENTS_MAX}")
    policy = await usable_policy(access.configurations, receiver)
    tried = policy.transform if transform is None else transform
    if tried is None:
        raise BadInput(f"{receiver} has no transform; give one to try")
    if problems := list(transform_problems(tried, "")):
        raise BadInput("; ".join(problems))
    shaping, is_own = shaping_of(tried, policy.pseudonym_key), True
    if tried.pseudonymize and (not shaping.key or is_sealed(policy.pseudonym_key)):
        shaping, is_own = Shaping(tried, secrets.token_bytes(KEY_BYTES_MIN)), False

    def wanted(event: Event) -> bool:
        return subscribes(receiver, policy, event) and policy.admits(event.region)

    found = await newest_events(access.js, access.names, tenant_of(receiver), last, wanted)
    shaped = [await asyncio.to_thread(partial(_shaped, event, shaping)) for event in found.events]
    return TransformTrial(
        receiver=receiver, transform=tried, key="own" if is_own else "made_up", cut=found.is_cut,
        events=shaped,
    )  # fmt: skip


def _shaped(event: Event, shaping: Shaping) -> ShapedEvent:
    body = shape(event.body, event.region, shaping)
    text, why = (None, body.why) if isinstance(body, Unshapeable) else (body.decode(), "")
    return ShapedEvent(
        position=event.position, id=event.id, type=event.type, stored_at=instant_text(event.stored_at),
        body=text, why=why,
    )  # fmt: skip
