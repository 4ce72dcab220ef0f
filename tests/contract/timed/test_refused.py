"""Due events that the events stream refuses: they wait, others do not, and none is lost."""

import pytest

from angarium.operations.installation.doctor.storage import check_timed_room
from streams.installation.topology import Installation, Names
from streams.nats.jetstream import JetStream
from streams.timed import due_publisher
from tests.contract.support.faults import refused
from tests.contract.support.routers import (
    TENANT,
    OpenOwner,
    announce,
    has_stored,
    settled,
    stored,
    subscribe,
)
from tests.contract.timed.publishing import NEIGHBOUR, A, at
from tests.support.waiting import until

FULL = 10077


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused events are tried again soon."""
    monkeypatch.setattr(due_publisher, "REFUSED_PAUSE_MAX_S", 1.0)


async def size_events(js: JetStream, names: Names, max_msg_size: int) -> None:
    """Let the events stream take messages up to that size."""
    info = await js.existing_stream(names.events)
    await js.stream_update(info.config | {"max_msg_size": max_msg_size})


async def doctor_complains(js: JetStream, names: Names) -> bool:
    """True if `angarium doctor` says that due events may be refused."""
    found = await check_timed_room(js, Installation(prefix=names.prefix))
    return any("may refuse events that are due" in each.text and not each.ok for each in found)


async def test_a_due_event_that_is_too_large_waits_alone(
    js: JetStream, names: Names, open_owner: OpenOwner, caplog: pytest.LogCaptureFixture
) -> None:
    """An operator lowers what the events stream takes; what waits is delivered once that is undone."""
    await subscribe(js, names, A)
    await subscribe(js, names, f"{NEIGHBOUR}.n")
    await open_owner()
    headers = at(1.5)
    before = (await js.existing_stream(names.events)).config["max_msg_size"]
    await announce(js, names, b"x" * 5_000, headers=headers)
    await announce(js, names, b"of the tenant", headers=headers)
    await announce(js, names, b"of a neighbour", tenant=NEIGHBOUR, headers=headers)
    await settled(js, names, 3)
    assert not await doctor_complains(js, names)
    await size_events(js, names, 3_000)
    assert await doctor_complains(js, names)
    await has_stored(js, names, f"{NEIGHBOUR}.n", [b"of a neighbour"])
    await has_stored(js, names, A, [b"of the tenant"])
    await announce(js, names, b"later", tenant=NEIGHBOUR, headers=at(0.5))
    await has_stored(js, names, f"{NEIGHBOUR}.n", [b"of a neighbour", b"later"])
    await until(lambda: any(each.message == "later.refused" for each in caplog.records))
    await size_events(js, names, before)
    await has_stored(js, names, A, [b"of the tenant", b"x" * 5_000])


async def test_a_tenant_whose_due_event_is_refused_waits_and_others_do_not(
    js: JetStream, names: Names, open_owner: OpenOwner
) -> None:
    """The stream has room for smaller events of others."""
    await subscribe(js, names, A)
    await subscribe(js, names, f"{NEIGHBOUR}.n")
    owner = await open_owner()
    subject = names.publish_event(TENANT, "a")
    owner.js.faults[subject] += [refused(FULL)] * 3
    headers = at(1.0)
    await announce(js, names, b"first", headers=headers)
    await announce(js, names, b"second", headers=headers)
    await announce(js, names, b"of a neighbour", tenant=NEIGHBOUR, headers=headers)
    await has_stored(js, names, f"{NEIGHBOUR}.n", [b"of a neighbour"])
    assert await stored(js, names, A) == []
    await has_stored(js, names, A, [b"first", b"second"])
    assert len(owner.js.published[subject]) == 5
