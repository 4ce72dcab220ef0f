"""Changes receivers to match a document: differences are stored, and receivers removed if asked for.

Everything is compared and checked before anything is stored. Members that the document leaves out go back to
their defaults, except those that its author does not decide: secrets, and a pause that is in force. Each
receiver is stored or removed only if it has not changed since it was compared; applying the document again
continues.
"""

from collections.abc import Callable, Collection
from typing import Any, Literal

from msgspec import Struct

from actors.errors import AngariumError, BadInput, InvalidPolicy
from actors.ids import check_tenant, tenant_of
from angarium.access import Access
from angarium.operations.configurations.changes import MemberChange
from angarium.operations.configurations.proposal import Proposal, PutResult, store
from angarium.operations.configurations.put import NewConfiguration, proposed
from angarium.operations.configurations.stored import readable_members, require_stored
from angarium.operations.declarations.declared import problems_with_pointers, shown_problems
from angarium.operations.failures import OperationError, not_done, operation
from angarium.settings import Settings
from streams.buckets.stored_configurations import Configuration

Action = Literal["create", "change", "keep", "remove"]


class ReceiverChange(Struct, frozen=True, kw_only=True):
    """One receiver, and the action that makes it match the document.

    `notes` say why nodes may not post to a new URL.
    """

    action: Action
    receiver: str
    changes: list[MemberChange] = []
    notes: list[str] = []


class AppliedDocument(Struct, frozen=True, kw_only=True):
    """The plan, and its results: stored, removed, not done; all empty if the plan was not agreed to.

    `failed`: a sentence for each receiver that failed.
    """

    plan: list[ReceiverChange]
    agreed: bool
    stored: list[PutResult]
    removed: list[str]
    failed: dict[str, str]


@operation
async def apply(
    access: Access,
    declared: dict[str, dict[str, Any]],
    *,
    tenant: str | None = None,
    prune: bool = False,
    agreed: Callable[[list[ReceiverChange]], bool] = lambda _: True,
) -> AppliedDocument:
    """Store differing receivers, and with `prune` remove undeclared ones, if `agreed` accepts the plan.

    Only receivers of `tenant` are checked, or of the tenants that the document names. Fails as invalid,
    with a pointer for each problem, before anything is stored.
    """
    tenants = _tenants(declared, tenant)
    configurations = access.configurations
    found: dict[str, Configuration] = {}
    for one in sorted(tenants):
        found |= await configurations.all(one)
    proposals = _proposals(declared, found, access.settings)
    gone = sorted(found.keys() - declared.keys()) if prune else []
    plan = [_step(each) for each in proposals] + [
        ReceiverChange(action="remove", receiver=each) for each in gone
    ]
    done = AppliedDocument(plan=plan, agreed=agreed(plan), stored=[], removed=[], failed={})
    if not done.agreed:
        return done
    work: list[Proposal | str] = [*filter(_differs, proposals), *gone]
    for each in work:
        name = each if isinstance(each, str) else each.receiver
        try:
            if isinstance(each, str):
                require_stored(name, await configurations.delete(name, found[name].revision))
                done.removed.append(name)
            else:
                done.stored.append(await store(access, each))
        except AngariumError as error:
            failure = not_done(error)
            done.failed[name] = failure.sentence
            if failure.kind != "conflict":
                break  # Otherwise each of the following would fail in the same way.
    return done


def _tenants(declared: Collection[str], tenant: str | None) -> set[str]:
    """The tenants that are checked. Raises InvalidName and InvalidPolicy."""
    named = {tenant_of(each) for each in declared}
    if tenant is None:
        return named
    check_tenant(tenant)
    if others := sorted(each for each in declared if tenant_of(each) != tenant):
        raise InvalidPolicy(
            shown_problems([f"/receivers/{each}: is not of the tenant {tenant}" for each in others])
        )
    return {tenant}


def _proposals(
    declared: dict[str, dict[str, Any]], found: dict[str, Configuration], settings: Settings
) -> list[Proposal]:
    """One for each that is declared, in alphabetical order. Raises InvalidPolicy with all problems."""
    proposals: list[Proposal] = []
    problems: list[str] = []
    for name, members in sorted(declared.items()):
        before = found.get(name)
        paused = None if before is None else readable_members(before.raw).get("paused")
        if paused is not None and "paused" not in members:
            members = members | {"paused": paused}
        try:
            new = NewConfiguration(members=members, replace=True)
            proposals.append(proposed(name, new, before, settings))
        except BadInput as error:
            problems += problems_with_pointers(name, error)
        except OperationError as error:
            problems += problems_with_pointers(name, BadInput(str(error)))
    if problems:
        raise InvalidPolicy(shown_problems(problems))
    return proposals


def _differs(proposal: Proposal) -> bool:
    return proposal.before is None or bool(proposal.changes)


def _step(proposal: Proposal) -> ReceiverChange:
    action: Action = "create" if proposal.before is None else "change" if proposal.changes else "keep"
    return ReceiverChange(
        action=action,
        receiver=proposal.receiver,
        changes=proposal.changes,
        notes=list(map(str, proposal.notes)),
    )
