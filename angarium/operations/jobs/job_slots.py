"""The slots for jobs in one process, and which job gets the next one. Pure.

While jobs wait, a job has its slot for a turn of `SLOT_TURN_S`. The tenant with the fewest slots comes first;
among several, the one that was served longest ago. A job whose turn is over gives its slot to another job of
its tenant, or to a tenant that has fewer slots. So every tenant gets its turn; a tenant with many jobs
may keep a slot while its jobs change.
"""

from collections import Counter, deque
from collections.abc import Iterable

from msgspec import Struct

from angarium.operations.jobs.plans import JobKind

SLOTS_MAX = 8
TENANT_SLOTS_MAX = 2
SLOT_TURN_S = 30.0

JobKey = tuple[JobKind, str]


class WaitingJob(Struct, frozen=True):
    """A job that could continue now, and since when it waits."""

    key: JobKey
    tenant: str
    since: float


class _JobTurn(Struct):
    """The turn of a job: since when, and whether it has to leave."""

    tenant: str
    since: float
    over: bool = False


class JobSlots:
    """The slots of one process, each taken by a job; times are those of one monotonic clock."""

    def __init__(self) -> None:
        self._turns: dict[JobKey, _JobTurn] = {}
        self._served_at: dict[str, float] = {}

    def __contains__(self, key: JobKey) -> bool:
        return key in self._turns

    def is_over(self, key: JobKey) -> bool:
        """True if the job has to leave its slot, because others wait."""
        return self._turns[key].over

    def leave(self, key: JobKey, now: float) -> None:
        """Free the slot of a job."""
        self._served_at[self._turns.pop(key).tenant] = now

    def fill(self, waiting: Iterable[WaitingJob], now: float) -> list[JobKey]:
        """The waiting jobs that get a slot now; for the others, turns that have lasted long enough end."""
        queues: dict[str, deque[WaitingJob]] = {}
        for each in sorted(waiting, key=lambda each: each.since):
            queues.setdefault(each.tenant, deque()).append(each)
        self._forget_all_but(queues)
        for tenant, queue in queues.items():
            self._served_at.setdefault(tenant, queue[0].since)
        chosen = []
        staying = Counter(turn.tenant for turn in self._turns.values() if not turn.over)
        while queues:
            tenant = min(queues, key=lambda each: (staying[each], self._served_at[each]))
            if staying[tenant] < TENANT_SLOTS_MAX and staying.total() < SLOTS_MAX:
                job = queues[tenant].popleft()
                staying[tenant] += 1
                if self._is_free_for(tenant):
                    self._turns[job.key] = _JobTurn(tenant, now)
                    self._served_at[tenant] = now
                    chosen.append(job.key)
                if queues[tenant]:
                    continue
            elif (leaving := self._longest(tenant, staying, now)) is not None:
                leaving.over = True
                staying[leaving.tenant] -= 1
                continue
            del queues[tenant]
        return chosen

    def _is_free_for(self, tenant: str) -> bool:
        taken = Counter(turn.tenant for turn in self._turns.values())
        return taken[tenant] < TENANT_SLOTS_MAX and taken.total() < SLOTS_MAX

    def _longest(self, tenant: str, staying: Counter[str], now: float) -> _JobTurn | None:
        """The turn that ends for a job of that tenant, if one has lasted long enough and may end for it."""
        ending = [
            each for each in self._turns.values()
            if not each.over and now - each.since >= SLOT_TURN_S
            and (each.tenant == tenant or staying[each.tenant] > staying[tenant])
        ]  # fmt: skip
        return max(ending, key=lambda each: (staying[each.tenant], -each.since), default=None)

    def _forget_all_but(self, tenants: Iterable[str]) -> None:
        """Forget the tenants without a job; one that returns queues behind the others."""
        known = {*tenants, *(turn.tenant for turn in self._turns.values())}
        self._served_at = {tenant: at for tenant, at in self._served_at.items() if tenant in known}
