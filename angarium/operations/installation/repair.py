"""Repairs shards whose streams lost messages that were read from them, if the operator accepts the loss."""

from collections.abc import Callable, Sequence

from msgspec import Struct

from actors.errors import Unusable
from angarium.access import Access
from angarium.operations.failures import NotDone, not_done, operation
from streams.clock import SystemTime
from streams.nats.errors import RepairError
from streams.observation.installation_status import recorded_losses, recreated
from streams.repair import acceptance
from streams.repair.damage import Damage, find_damage
from streams.repair.preconditions import check_rights, dead_holders, takes_over_from


class RepairedShard(Struct, frozen=True):
    """A repaired shard: its loss, and the number of receivers that were set back."""

    damage: Damage
    brought_back: int


class Repairs(Struct, frozen=True):
    """The shards that were repaired, and why others could not be."""

    repaired: list[RepairedShard]
    failures: list[NotDone]


@operation
async def accept_loss(
    access: Access, shards: Sequence[int] | None, agreed: Callable[[Sequence[Damage]], bool]
) -> Repairs:
    """Repair these shards, or all that are refused (None), if `agreed` accepts the loss.

    Nodes ask NATS again after any error; this does not, since a person waits.
    """
    return await access.js.unless_forbidden(_accept(access, shards, agreed))


async def _accept(
    access: Access, shards: Sequence[int] | None, agreed: Callable[[Sequence[Damage]], bool]
) -> Repairs:
    js, names, done = access.js, access.names, Repairs([], [])
    if shards is None:
        others = await recreated(js, names, access.installation.shards)
        shards = (
            range(access.installation.shards)
            if others
            else tuple(await recorded_losses(js, names, access.installation.shards))
        )
    damages = [await find_damage(js, names, shard) for shard in shards]
    damages = [damage for damage in damages if not damage.is_empty]
    if not damages or not agreed(damages):
        return done
    await check_rights(js, names)
    may_claim = takes_over_from(await dead_holders(js, names, [damage.shard for damage in damages]))
    node = f"repair-{access.settings.node}"
    for damage in damages:
        try:
            found, count = await acceptance.accept_loss(
                js, names, damage.shard, node, SystemTime(), may_claim=may_claim, agreed=damage
            )
        except (RepairError, Unusable) as error:
            done.failures.append(not_done(error))
        else:
            done.repaired.append(RepairedShard(found, count))
    return done
