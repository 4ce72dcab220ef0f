"""Alerts as a receiver of alerts gets them, though the node is killed as soon as it has recorded each."""

import msgspec

from tests.support.fleet.fleet import Fleet
from tests.support.fleet.load import publish
from tests.support.fleet.sink import Reply, Request
from tests.support.processes.nodes import Node

SHOP, OPS, ALL = "t.shop", "t.ops", "t.all"


async def test_an_alert_reaches_its_receiver_despite_a_kill_of_the_node(fleet: Fleet) -> None:
    told: dict[str, dict[str, object]] = {}

    def look(receiver: str, request: Request) -> None:
        if receiver == OPS:
            told.setdefault(request.headers["webhook-id"], msgspec.json.decode(request.body))

    fleet.sink.onlooker = look
    fleet.sink.manners[SHOP] = lambda _: Reply(status=410)
    await fleet.configure([OPS], events=["angarium.alert.>"])
    await fleet.configure([SHOP, ALL])
    node = await fleet.start_ready()
    await publish(fleet.js, SHOP, "one", b"{}")
    await killed_once_it_says(fleet, node, "alert.raised")
    await fleet.until(lambda: len(told) == 1, "the alert arrives")
    del fleet.sink.manners[SHOP]
    await fleet.ask("resume", SHOP)
    await killed_once_it_says(fleet, node, "alert.recovered")
    await fleet.until(lambda: len(told) == 2, "it arrives that the alert is over")
    members = ("receiver", "alert", "change", "number", "why")
    assert [tuple(each[name] for name in members) for each in told.values()] == [
        (SHOP, "disabled", "raised", 1, "it answered 410"),
        (SHOP, "disabled", "recovered", 2, "it was resumed, or its URL was changed"),
    ]
    ids = [event_id.rpartition(":")[0] for event_id in told]
    assert ids == ["alert:t:shop:1", "alert:t:shop:2"]
    assert not fleet.sink.arrivals.get(ALL)
    assert not [each for each in node.said if each["event"].startswith("alert.")]  # It was said before.


async def killed_once_it_says(fleet: Fleet, node: Node, event: str) -> None:
    """Kill the node when it has logged this, and start it again."""
    await fleet.hears(node, event)
    await node.kill()
    await node.start()
    await fleet.hears(node, "node.ready")
