"""Seals the secrets of all receivers with the present key, and counts which keys they are sealed with.

Each configuration is stored only if it has not changed since it was read, so a change at the same moment
wins. What the present key has sealed is passed over: after a stop, the next run does what is left.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import assert_never

from msgspec import Struct

from actors.ports import Invalid
from angarium.access import Access
from angarium.operations.failures import OperationError, operation
from streams.bounded_gather import gather_bounded
from streams.buckets.sealing_marker import is_sealing, mark_sealing
from streams.buckets.stored_configurations import KeysUsed, Unopened
from streams.nats.retry import retry_for_command
from streams.sealing.documents import UNENCRYPTED
from streams.sealing.keys import Keys

RECEIVERS_AT_ONCE = 16


class KeyRotation(Struct, frozen=True, kw_only=True):
    """The result: how many receivers it sealed, which were sealed already, and why some are left.

    - `left`: the reasons by receiver.
    """

    key: str
    sealed: int
    already: int
    left: dict[str, tuple[str, ...]]


class KeyUse(Struct, frozen=True, kw_only=True):
    """The keys that secrets are sealed with.

    - `present`: the key that seals here; None without a key file.
    - `receivers`: how many have a secret that is sealed with each key.
    - `unencrypted`: those with a secret that is not sealed.
    - `unopened`: why secrets cannot be opened, by receiver; empty without a key file.
    - `required`: no process may store new secrets unencrypted.
    """

    present: str | None
    receivers: dict[str, int]
    unencrypted: list[str]
    unopened: dict[str, tuple[str, ...]]
    required: bool


@operation
async def rotate_key(access: Access, progress: Callable[[int, int], None]) -> KeyRotation:
    """Seal the secrets of all receivers with the first key of the key file. Fails as invalid without one."""
    key = _present(access.keys())
    await retry_for_command(mark_sealing, access.js, access.names, key)
    names = await retry_for_command(access.configurations.keys)
    sealed, done, left = Counter[str](), 0, dict[str, tuple[str, ...]]()

    async def seal(name: str) -> None:
        nonlocal done
        match await retry_for_command(access.configurations.seal_again, name):
            case Unopened(problems) | Invalid(problems):
                left[name] = problems
            case "sealed" | "sealed already" | "nothing to seal" as outcome:
                sealed[outcome] += 1
            case never:
                assert_never(never)
        done += 1
        progress(done, len(names))

    await gather_bounded(names, seal, RECEIVERS_AT_ONCE)
    return KeyRotation(
        key=key, sealed=sealed["sealed"], already=sealed["sealed already"], left=dict(sorted(left.items()))
    )


@operation
async def key_use(access: Access) -> KeyUse:
    """The keys that secrets are sealed with."""
    return await count_keys(access, await retry_for_command(access.configurations.key_uses))


async def count_keys(access: Access, uses: Mapping[str, KeysUsed]) -> KeyUse:
    """Count the receivers by the keys that seal their secrets. Raises `Unavailable`."""
    receivers, unencrypted = Counter[str](), list[str]()
    for name, use in uses.items():
        for key in use.keys:
            if key == UNENCRYPTED:
                unencrypted.append(name)
            else:
                receivers[key] += 1
    return KeyUse(
        present=access.keys().present,
        receivers=dict(sorted(receivers.items())),
        unencrypted=unencrypted,
        unopened={name: use.unopened for name, use in uses.items() if use.unopened},
        required=await retry_for_command(is_sealing, access.js, access.names),
    )


def _present(keys: Keys) -> str:
    if keys.present is None:
        raise OperationError(
            "invalid", "there is no key to seal with", remedy=": give a key file (ANGARIUM_KEY_FILE)"
        )
    return keys.present
