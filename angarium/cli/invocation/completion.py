"""The names of receivers and nodes for shell completion: at once or not at all, never a word on stderr.

The shell runs `angarium` with `_ANGARIUM_COMPLETE` set when Tab is pressed. Errors (no server, no permission,
a bad setting) are left to the command itself.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from streams.installation.topology import Names
    from streams.nats.jetstream import JetStream

NAMES_TIMEOUT_S = 1.0

log = logging.getLogger(__name__)


def receivers(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """The receivers whose names begin like that."""
    tenant, dot, _name = incomplete.partition(".")

    async def configured(js: "JetStream", names: "Names") -> Iterable[str]:
        from streams.buckets.stored_configurations import StoredConfigurations

        return await StoredConfigurations(js, names).all(tenant if dot else "*")

    return _matching(context.params, incomplete, configured)


def nodes(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """The live nodes whose names begin like that."""

    async def live(js: "JetStream", names: "Names") -> Iterable[str]:
        from streams.fleet.live_members import live_members

        return [each.node for each in (await live_members(js, names))[0]]

    return _matching(context.params, incomplete, live)


def _matching(
    given: dict[str, Any],
    incomplete: str,
    read_names: "Callable[[JetStream, Names], Awaitable[Iterable[str]]]",
) -> list[str]:
    import asyncio

    logging.disable()  # This process prints nothing but names.
    try:
        found = asyncio.run(_seen(given, read_names))
    except Exception as error:
        log.debug("completion.failed", exc_info=error)
        return []
    return [name for name in found if name.startswith(incomplete)]


async def _seen(
    given: dict[str, Any], read_names: "Callable[[JetStream, Names], Awaitable[Iterable[str]]]"
) -> Iterable[str]:
    import asyncio

    from angarium import settings
    from angarium.access import installation, open_jetstream

    loaded = settings.load(
        {name: given.get(name) for name in ("config", *settings.Settings.__struct_fields__)}
    )
    async with asyncio.timeout(NAMES_TIMEOUT_S), open_jetstream(loaded, for_command=True) as js:
        return await read_names(js, installation(loaded).names)
