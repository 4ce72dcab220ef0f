"""The names of receivers for shell completion: at once or not at all, and never a word on stderr.

The shell runs `angarium` with `_ANGARIUM_COMPLETE` set when Tab is pressed. Errors (no server, no permission,
a bad setting) are left to the command itself.
"""

import logging
from typing import Any

import click

LOOK_TIMEOUT_S = 1.0

log = logging.getLogger(__name__)


def receivers(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """The receivers whose names begin like that."""
    import asyncio

    logging.disable()  # This process prints nothing but names.
    try:
        return asyncio.run(_matching(context.params, incomplete))
    except Exception as error:
        log.debug("completion.failed", exc_info=error)
        return []


async def _matching(given: dict[str, Any], incomplete: str) -> list[str]:
    import asyncio

    from angarium import settings
    from angarium.connecting import installation, open_jetstream
    from streams.buckets.stored_configurations import StoredConfigurations

    loaded = settings.load(
        {name: given.get(name) for name in ("config", *settings.Settings.__struct_fields__)}
    )
    tenant, dot, _ = incomplete.partition(".")
    async with asyncio.timeout(LOOK_TIMEOUT_S), open_jetstream(loaded) as js:
        found = await StoredConfigurations(js, installation(loaded).names).all(tenant if dot else "*")
    return [name for name in found if name.startswith(incomplete)]
