"""Budgets of tenants: how many attempts of one tenant are under way on this node at a time.

Beyond its budget, the attempts of a tenant wait for each other, receiver by receiver in turn, and hold no
connection meanwhile. No tenant waits for the attempts of another one here.
"""

from collections.abc import Callable
from typing import Self

from actors.ids import tenant_of
from angarium.delivery.connections.fair_slots import FairSlots, SlotTurn


class TenantBudgets:
    """The budgets of all tenants. `attempts_max` returns that of one; None: it has none."""

    def __init__(self, attempts_max: Callable[[str], int | None]) -> None:
        self._attempts_max = attempts_max
        self._slots: dict[str, FairSlots] = {}

    def turn(self, receiver: str) -> "BudgetTurn | None":
        """The turn of an attempt at this receiver; None if its tenant has no budget."""
        tenant = tenant_of(receiver)
        count = self._attempts_max(tenant)
        if count is None:
            return None
        slots = self._slots.get(tenant) or self._slots.setdefault(tenant, FairSlots(count, count))
        return BudgetTurn(self, tenant, slots.turn(tenant, receiver))

    @property
    def in_use(self) -> int:
        """The number of tenants with a budget of which attempts are under way."""
        return len(self._slots)

    def forget_if_unused(self, tenant: str) -> None:
        """Forget a tenant without attempts."""
        slots = self._slots.get(tenant)
        if slots is not None and slots.is_unused:
            del self._slots[tenant]


class BudgetTurn:
    """The turn of one attempt within the budget of its tenant; it ends with the `with` block."""

    __slots__ = ("_budgets", "_tenant", "_turn")

    def __init__(self, budgets: TenantBudgets, tenant: str, turn: SlotTurn) -> None:
        self._budgets = budgets
        self._tenant = tenant
        self._turn = turn

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._turn.end()
        self._budgets.forget_if_unused(self._tenant)

    async def begin(self, deadline: float) -> bool:
        """Wait for the turn; False if the deadline, in the loop's time, came first."""
        return await self._turn.begin(deadline)
