"""The other transport, for operators who need it: a node that delivers by httpx."""

from pathlib import Path

from tests.support.fleet.fleet import Fleet
from tests.support.fleet.load import publish
from tests.support.fleet.sink import Reply


async def test_a_node_delivers_by_httpx_if_its_settings_say_so(fleet: Fleet, tmp_path: Path) -> None:
    (tmp_path / "angarium.toml").write_text('transport = "httpx"')
    await fleet.start_ready()
    fleet.sink.manners["t.r"] = lambda number: Reply(status=500) if number == 1 else Reply()
    await fleet.configure(["t.r"], retry={"base_s": 0.05, "cap_s": 0.2})
    for event_id in ("a", "b"):
        await publish(fleet.js, "t.r", event_id, b"{}")
    arrivals = fleet.sink.arrivals["t.r"]
    await fleet.until(lambda: len(arrivals) == 3, "both events arrived")
    assert [(each.sequence, each.attempt, each.status) for each in arrivals] == [
        (1, 1, 500), (1, 2, 200), (2, 1, 200),
    ]  # fmt: skip
