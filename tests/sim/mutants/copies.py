"""The rules of the router and of its copies, each taken out by itself."""

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias
from weakref import WeakValueDictionary

from msgspec.structs import replace

from actors.machine import numbering
from actors.machine.event import Event
from actors.machine.numbering import is_duplicate
from actors.machine.scheduling import next_step as scheduling
from angarium.node import shard
from streams.installation.topology import Names
from streams.journal.routing_progress import RoutingProgress
from streams.nats.jetstream import JetStream
from streams.reading.reader import ReadingTerms
from streams.routing import router
from streams.routing.freshness import Freshness
from streams.routing.lanes import Lanes
from streams.routing.node_routing import Routing
from streams.routing.router import Router
from streams.routing.tenants import Tenants
from tests.sim.mutants.mutant import Mutant
from tests.sim.scenarios import flooding, routing

_BeginCopy: TypeAlias = Callable[[str, Any, Callable[[str], None]], None]

_copy_confirmed = Tenants.note_copy_stored


def _let_pass_at_first(tenants: Tenants[Any], event: Any) -> None:
    _copy_confirmed(tenants, event)
    tenants.holding_back.pop(event.position, None)


class _LanesThatGoOn(Lanes[Any]):
    """A head that failed goes to the end of its lane."""

    def __init__(self, js: JetStream, begin: _BeginCopy, arrived: Callable[[Any], None], *more: Any) -> None:
        failed: list[Any] = []

        def begin_or_go_on(lane: str, item: Any, ended: Callable[[str], None]) -> None:
            def went_or_goes_on(why: str) -> None:
                if not why:
                    ended("")
                    return
                failed.append(item)
                self.add(lane, item)
                asyncio.get_running_loop().call_later(0.1, ended, "")

            begin(lane, item, went_or_goes_on)

        def went(item: Any) -> None:
            if item in failed:
                failed.remove(item)
            else:
                arrived(item)

        super().__init__(js, begin_or_go_on, went, *more)


def _lanes_of_one_try(js: JetStream, begin: _BeginCopy, *more: Any) -> Lanes[Any]:
    def begin_once(lane: str, item: Any, ended: Callable[[str], None]) -> None:
        begin(lane, item, lambda _: ended(""))

    return Lanes(js, begin_once, *more)


class _RouterWithOldMemory(Router):
    """Takes what the router before it in this process has seen as routed."""

    _before: ClassVar[WeakValueDictionary[tuple[int, int], Router]] = WeakValueDictionary()

    def __init__(
        self, js: JetStream, names: Names, partition: int, routing: Routing, terms: ReadingTerms, *,
        recorded: Callable[[], RoutingProgress], **more: Any,
    ) -> None:  # fmt: skip
        before = self._before.get((id(routing), partition))
        seen = before.mark.position if before else 0
        super().__init__(
            js, names, partition, routing, terms, recorded=lambda: recorded().raised_to(seen), **more
        )
        self._before[id(routing), partition] = self


def _number_by_id_alone(frontier: numbering.Frontier, event: Event) -> bool:
    return is_duplicate(frontier, replace(event, source=0))


COPY_MUTANTS = [
    Mutant("acked-at-first-copy", "an event is acked when all its copies are confirmed",
           ((Tenants, "note_copy_stored", _let_pass_at_first),),
           routing.one_of_two_copies_is_stored),
    Mutant("sent-once", "a copy is repeated until it is confirmed",
           ((router, "Lanes", _lanes_of_one_try),),
           flooding.one_event_waits_and_others_are_routed),
    Mutant("lane-goes-on", "a lane waits for its head", ((router, "Lanes", _LanesThatGoOn),)),
    Mutant("source-ignored", "what comes from a source not above the highest is a repeat",
           ((scheduling, "is_duplicate", _number_by_id_alone),),
           routing.events_are_routed_again_beyond_the_window),
    Mutant("stale-configurations", "nothing is matched by configurations older than half a second",
           ((Freshness, "covers", lambda freshness, came_at: True),),
           routing.replicas_do_not_show_a_subscription),
    Mutant("router-remembers", "a new ownership forgets what was seen",
           ((shard, "Router", _RouterWithOldMemory),)),
]  # fmt: skip
