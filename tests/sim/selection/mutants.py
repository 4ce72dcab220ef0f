"""The rules of regions and filters, each taken out by itself."""

from actors.configuration.policy import Policy
from actors.machine import commands as c
from actors.machine import facts as f
from actors.machine.bucket import Bucket
from actors.machine.decide import decide
from actors.machine.event import Event
from actors.machine.state import State
from actors.runtime import live_state
from streams.nats.wire_names import EVENT_REGION
from streams.routing import routed_events
from streams.routing.fanout import copy_headers
from streams.routing.read_requests import WaitingEvent
from streams.routing.selection.receiver_selection import ReceiverSelection
from streams.routing.selection.sending_rules import SendingRules
from streams.routing.tenants import Tenants
from tests.sim.mutants.mutant import Mutant
from tests.sim.selection import scenarios

_put = SendingRules.put
_advance = ReceiverSelection.advance


def _keep_the_first(rules: SendingRules, receiver: str, policy: Policy | None) -> None:
    if receiver not in rules.by_receiver(receiver.partition(".")[0]):
        _put(rules, receiver, policy)


async def _end_after_one_turn(selection: ReceiverSelection) -> bool:
    return await _advance(selection) or True


def _match_behind_others(tenants: Tenants[WaitingEvent], event: WaitingEvent) -> None:
    tenant = tenants.by_name[event.tenant]
    tenant.unmatched.append(event)
    tenants.note_matched(event, 0)


def _headers_without_region(event: Event, source: int | None = None) -> dict[str, str]:
    return {name: value for name, value in copy_headers(event, source).items() if name != EVENT_REGION}


def _discard_without_number(
    state: State, policy: Policy | None, command: c.Command, at: float, bucket: Bucket | None
) -> list[f.Fact]:
    if isinstance(command, c.GiveUpEvents) and command.reason == f.OUTSIDE_REGION:
        return [
            f.EventDropped(receiver=state.receiver, position=each.position, id=each.id, reason=f.ERASED)
            for each in command.events
        ]
    return decide(state, policy, command, at, bucket)


SELECTION_MUTANTS = [
    Mutant("filter-kept", "a changed filter holds for events that are published a second later",
           ((SendingRules, "put", _keep_the_first),), scenarios.a_filter_changes),
    Mutant("turn-is-the-last", "a selection goes on until all filters are evaluated",
           ((ReceiverSelection, "advance", _end_after_one_turn),), scenarios.a_selection_takes_several_turns),
    Mutant("turn-goes-behind", "an event whose selection goes on stays before those that follow it",
           ((Tenants, "match_later", _match_behind_others),), scenarios.a_selection_takes_several_turns),
    Mutant("copy-without-region", "a copy keeps the region of its event",
           ((routed_events, "copy_headers", _headers_without_region),),
           scenarios.an_event_waits_as_the_region_changes),
    Mutant("sent-out-of-its-region", "the owner sends no event of another region, however it came",
           ((Policy, "admits", lambda policy, region: True),),
           scenarios.a_direct_send_belongs_to_another_region),
    Mutant("discarded-without-number", "an event that is discarded has its number",
           ((live_state, "decide", _discard_without_number),),
           scenarios.the_region_goes_after_an_event_was_discarded),
]  # fmt: skip
