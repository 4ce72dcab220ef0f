"""Counters over a node's whole life: shards come and go, and counters must never fall."""

from msgspec import Struct, field

from actors.delivery_totals import DeliveryTotals
from streams.journal.journal import JournalTotals


class OwnershipTotals(Struct):
    """Totals of claims and losses of shards: `clean` after a release, `resumed` from memory after a lapse."""

    clean: int = 0
    unclean: int = 0
    resumed: int = 0
    fenced: int = 0


class NodeTotals(Struct, frozen=True):
    """Counters that the shards of a node share.

    Its routers count in `streams.routing.node_routing.RoutingTotals`.
    """

    actors: DeliveryTotals = field(default_factory=DeliveryTotals)
    journal: JournalTotals = field(default_factory=JournalTotals)
    ownership: OwnershipTotals = field(default_factory=OwnershipTotals)
