"""The arguments that name receivers, tenants and nodes: checked first, and completed by Tab."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from angarium.cli.invocation import completion
from angarium.terminal import output

if TYPE_CHECKING:
    from angarium.settings import Settings

Command = TypeVar("Command", bound=Callable[..., Any])


def _receiver(_: click.Context, __: click.Parameter, name: str) -> str:
    """The name. Raises InvalidName."""
    from actors.ids import split_receiver

    split_receiver(name)
    return name


def _tenant(_: click.Context, __: click.Parameter, tenant: str | None) -> str | None:
    """The tenant, if one was named. Raises InvalidName."""
    from actors.ids import check_tenant

    if tenant is not None and "." in tenant:
        first = tenant.partition(".")[0]
        raise click.UsageError(f"give a tenant, such as {first}; for one receiver: angarium inspect {tenant}")
    return None if tenant is None else check_tenant(tenant)


def _nodes(_: click.Context, __: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    if "" in names:
        raise click.UsageError("the name of the node is empty; angarium fleet lists the nodes")
    return names


def note_unknown(name: str) -> None:
    """Say that there is no such receiver, or none of such a tenant: the name may be misspelled."""
    unknown = f"there is no receiver {name}" if "." in name else f"tenant {name} has no receivers"
    output.note(f"note: {unknown}; angarium receiver list shows all that there are")


def note_if_unknown(settings: "Settings", name: str) -> None:
    """Tell the user if nothing was found because there is no such receiver or tenant.

    A user who may not read the receivers gets no such message: the result is complete.
    """
    from angarium.access import with_access
    from angarium.operations.live.tail import is_known
    from angarium.terminal.run import run

    if run(with_access(settings, lambda access: is_known(access, name))) is False:
        note_unknown(name)


def receiver(parameter: str) -> Callable[[Command], Command]:
    """The argument that names one receiver."""
    return click.argument(
        parameter, metavar="TENANT.NAME", callback=_receiver, shell_complete=completion.receivers
    )


def nodes(parameter: str) -> Callable[[Command], Command]:
    """The argument that names one node or more."""
    return click.argument(
        parameter, metavar="NODE…", nargs=-1, required=True, callback=_nodes, shell_complete=completion.nodes
    )


def one_tenant(parameter: str) -> Callable[[Command], Command]:
    """The argument that names one tenant."""
    return click.argument(parameter, metavar="TENANT", callback=_tenant)


def tenant(parameter: str) -> Callable[[Command], Command]:
    """The argument that may name a tenant."""
    return click.argument(parameter, metavar="[TENANT]", required=False, callback=_tenant)
