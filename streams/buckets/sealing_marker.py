"""The marker of an installation that seals secrets: from then on no process stores new ones unencrypted.

It is a key of its own in the bucket of the actors. The first node that has a key file sets it, or a rotation.
"""

import msgspec
from msgspec import Struct

from actors.errors import Unavailable
from streams.buckets.follower import is_removal
from streams.installation.topology import Names
from streams.nats.answers import Forbidden, Stored
from streams.nats.errors import ApiError, NotPermitted
from streams.nats.jetstream import JetStream

VERSION = 1


class _Marker(Struct, frozen=True, kw_only=True):
    """The value of the marker; `key`: the id of the key that sealed when it was set, for people."""

    v: int = VERSION
    key: str


async def is_sealing(js: JetStream, names: Names) -> bool:
    """True if the installation seals secrets. Asks the leader; raises `Unavailable`."""
    try:
        message = await js.last_message(names.actors, names.actor_keys.sealing)
    except ApiError as error:
        raise Unavailable(f"cannot ask {names.actors} whether secrets are sealed: {error}") from error
    return message is not None and not is_removal(message)


async def mark_sealing(js: JetStream, names: Names, key: str) -> None:
    """Set the marker unless it is set. Raises `Unavailable` and NotPermitted."""
    if await is_sealing(js, names):
        return
    answer = await js.publish(names.actor_keys.sealing, msgspec.json.encode(_Marker(key=key)))
    if isinstance(answer, Forbidden):
        raise NotPermitted(answer.why, final=True)
    if not isinstance(answer, Stored):
        raise Unavailable(f"cannot store that secrets are sealed: {answer}")
