"""Rules about alerts, each taken out by itself."""

from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from actors.errors import Unavailable
from actors.machine import commands as c
from actors.machine.event import Event
from actors.machine.facts import AlertFact
from actors.machine.state import State
from actors.runtime.actor import Actor
from actors.runtime.alerts.watch import AlertWatch
from actors.runtime.host import Host
from actors.runtime.live_state import LiveState
from streams import alert_events
from streams.routing import router
from streams.routing.fanout import published_event
from tests.sim.alerts import scenarios
from tests.sim.mutants.mutant import Mutant

_publish = AlertWatch.publish


async def _at_once(host: Host, index: int) -> None:
    return


async def _publish_what_is_in_memory(watch: AlertWatch, unpublished: list[Actor]) -> None:
    for actor in unpublished:
        for fact in actor.state.unpublished_alerts:
            await watch.writer.publish(fact)
            actor.live.record(c.RecordAlertsPublished(fact.number), watch.shard.clock.now())


async def _record_first(watch: AlertWatch, unpublished: list[Actor]) -> None:
    for actor in unpublished:
        for fact in actor.live.confirmed.unpublished_alerts:
            actor.live.record(c.RecordAlertsPublished(fact.number), watch.shard.clock.now())
    await watch.shard.confirmed_to(watch.shard.recorder.index)
    await _publish(watch, unpublished)


async def _publish_past_failures(watch: AlertWatch, unpublished: list[Actor]) -> None:
    for actor in unpublished:
        for fact in actor.live.confirmed.unpublished_alerts:
            with suppress(Unavailable):
                await watch.writer.publish(fact)
                actor.live.record(c.RecordAlertsPublished(fact.number), watch.shard.clock.now())


_attempts = iter(range(1 << 30))


def _id_of_each_attempt(fact: AlertFact) -> str:
    return f"alert-{next(_attempts)}"


def _about_none(*args: Any) -> Event:
    return replace(published_event(*args), about="")


ALERT_MUTANTS = [
    Mutant("alert-unconfirmed", "an event about an alert is published when its fact is confirmed",
           ((Host, "confirmed_to", _at_once), (AlertWatch, "publish", _publish_what_is_in_memory)),
           scenarios.fact_about_an_alert_is_lost_with_its_owner),
    Mutant("alert-recorded-first", "an alert is recorded as published when its event is stored",
           ((AlertWatch, "publish", _record_first),),
           scenarios.event_about_an_alert_is_lost_with_its_owner),
    Mutant("alert-out-of-order", "an event about an alert is published after those before it are stored",
           ((AlertWatch, "publish", _publish_past_failures),),
           scenarios.event_about_an_alert_gets_lost_before_the_next_one),
    Mutant("alert-forgotten", "a receiver that owes the end of an alert comes back by itself",
           ((State, "may_change_alerts", property(lambda state: False)),),
           scenarios.quiet_receiver_owes_the_end_of_an_alert),
    Mutant("alert-outage", "a time without an owner is no failure of a receiver",
           ((LiveState, "failing_restored_at", property(lambda _: 0.0, lambda *_: None)),),
           scenarios.no_node_lives_for_longer_than_a_receiver_may_fail),
    Mutant("alert-ids", "the id of an event about an alert consists of the alert's number",
           ((alert_events, "id_of", _id_of_each_attempt),),
           scenarios.owner_dies_before_it_records_what_it_published),
    Mutant("alert-about-itself", "a receiver gets no event about its own alerts",
           ((router, "published_event", _about_none),),
           scenarios.receivers_of_alerts_are_down),
]  # fmt: skip
