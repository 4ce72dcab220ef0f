"""An event is erased while owners vanish: no number ever names two events."""

import msgspec

from actors.machine.state import OPEN_MAX
from tests.sim.stage import old, staged


def _request(event: str, *positions: int) -> bytes:
    return msgspec.json.encode({"event": event, "positions": positions})


def posted_event_is_erased() -> None:
    """An owner has posted three events and dies with its record. The next one erases the second."""
    with staged() as stage:
        stage.post_without_record("one", "two", "three")
        stage.node()
        stage.owner()
        stage.ask("erase", body=_request("two", 2))
        stage.put()
        stage.publish("four")
        stage.settle()


def event_is_erased_before_its_end_is_recorded() -> None:
    """An owner has posted three events, and dies before it can record that the second is over."""
    with staged() as stage:
        stage.put()
        first = stage.node()
        stage.lose_facts(b'"delivered"', stage.owner())
        stage.publish("one", "two", "three")
        stage.wait(0.5)
        stage.demand("erase", body=_request("two", 2))
        stage.wait(0.5)
        first.kill()
        stage.node()
        stage.owner()
        stage.publish("four")
        stage.settle()


def event_far_back_is_erased() -> None:
    """More events wait before it than an owner may have open: it gets no number, and they keep theirs."""
    with staged() as stage:
        stage.put(paused=True)
        stage.node()
        stage.owner()
        stage.publish(*old(OPEN_MAX + 4))
        stage.wait(3.0)
        stage.ask("erase", body=_request(f"old{OPEN_MAX + 2}", OPEN_MAX + 3))
        stage.put()
        stage.settle()
