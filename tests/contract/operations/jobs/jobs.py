"""Jobs that the tests begin, run and check, and the events that they send again."""

import asyncio

from actors.machine.facts import Burial
from angarium.access import Access
from angarium.operations.jobs import plans
from angarium.operations.jobs.begin import StartedJob, begin_redrive, begin_replay
from angarium.operations.jobs.plans import JobDocument
from angarium.operations.jobs.run import run_job
from angarium.operations.jobs.show import show
from angarium.operations.replays.resendable import ReplayFilter
from angarium.settings import Settings
from streams.dead_letters.bury import DeadLetterWriter
from streams.dead_letters.letters import LetterFilter
from streams.installation.topology import Names
from streams.nats.jetstream import JetStream
from tests.contract.resending.settled_events import ONE, settled
from tests.support.installation import publish

FAST = 100_000.0


def access(js: JetStream, names: Names) -> Access:
    return Access(js, Settings(prefix=names.prefix))


async def events(js: JetStream, names: Names, kind: str, count: int = 5) -> ReplayFilter:
    """Settled events of a type of their own; returns what means them."""
    for each in range(count):
        position = await publish(js, names, ONE, b"%d" % each, {"Angarium-Type": kind})
    await settled(js, names, position)
    return ReplayFilter(since=0.0, types=(kind,))


async def again(js: JetStream, names: Names, kind: str) -> list[int]:
    """Lists the events of a type that were sent again, in their order."""
    page = await js.read(names.deliveries, names.deliveries_to(ONE), 1, 10_000)
    return [
        int(each.data) for each in page.messages
        if each.headers.get("Angarium-Type") == kind and "Angarium-Again" in each.headers
    ]  # fmt: skip


async def replay_job(
    access: Access, wanted: ReplayFilter, key: str = "", per_second: float = FAST
) -> JobDocument:
    begun = await begin_replay(access, ONE, wanted, per_second, key)
    assert isinstance(begun, StartedJob), begun
    assert begun.mine
    return begun.job


async def go_on(access: Access, kind: plans.JobKind = "replay", of: str = ONE) -> str:
    """Works the job off, as a process of the API does that finds it."""
    return await run_job(access, kind, of, lambda: False, asyncio.Lock())


async def shown(access: Access, job: str) -> JobDocument:
    found = await show(access, job, plans=())
    assert isinstance(found, JobDocument), found
    return found


async def redrive_job(access: Access, key: str = "", tenant: str = "acme") -> JobDocument:
    begun = await begin_redrive(access, tenant, LetterFilter(receivers=f"{tenant}.*"), key)
    assert isinstance(begun, StartedJob), begun
    assert begun.mine
    return begun.job


async def buried(js: JetStream, names: Names, *numbers: int, receiver: str = ONE) -> None:
    for number in numbers:
        position = await publish(js, names, receiver, b"%d" % number, {"Angarium-Type": "dead"})
        burial = Burial(position=position, reason="expired", sequence=number)
        await DeadLetterWriter(js, names).bury(receiver, [burial])


async def is_held(access: Access) -> bool:
    """True if a process holds the redrive of the tenant."""
    row = await plans.plan_of(access, "redrive", "acme")
    return row is not None and row.plan.held
