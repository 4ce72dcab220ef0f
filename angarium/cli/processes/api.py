"""`angarium api`: the HTTP API of an installation."""

from typing import TYPE_CHECKING, Any

import click

from angarium.cli.invocation import options
from angarium.quantities import parse_address
from angarium.settings import Settings
from angarium.terminal import output
from angarium.terminal.run import end_on_sigterm, run_long

if TYPE_CHECKING:
    from angarium.access import Access


CHECKED = "checked"
"""A name for subjects that the check of our permissions publishes to; their streams store nothing of it."""


@click.command("api", short_help="Serve the HTTP API.")
@click.option("--host", metavar="ADDRESS", help="Address to listen on [part of ANGARIUM_API=127.0.0.1:8080].")
@click.option(
    "--port", type=click.IntRange(0, 65535), metavar="PORT", help="Port to listen on; 0 is any free one."
)
@options.settings_flags(
    "api",
    "api_monitor",
    "cors_origins",
    "console_url",
    "max_body",
    "ledger",
    *options.CONNECTION,
    *options.SEALING,
)
def api(host: str | None, port: int | None, **given: Any) -> None:
    """Serve the HTTP API until Ctrl-C: publish and manage with curl. Run as many as you like.

    The same address has the console under /console: look and act in a browser.

    It speaks plain HTTP. Put a TLS proxy in front of it. Tokens are made by `angarium token create`.
    """
    from importlib.util import find_spec

    if any(find_spec(each) is None for each in ("litestar", "uvicorn", "jinja2")):
        raise click.ClickException("the HTTP API is not installed: install the extra api (see README)")
    settings = options.settings_of(given, log_level="info")
    run_long(_serve(settings, host, port))


async def _serve(settings: Settings, host: str | None, port: int | None) -> None:
    """Serve until Ctrl-C or SIGTERM, which are the usual end of it."""
    import asyncio
    from contextlib import suppress

    from angarium.access import with_access
    from angarium.api.server import bind_socket, serve
    from angarium.console.app import Console

    end_on_sigterm()
    usual_host, usual_port = parse_address(settings.api)
    here = bind_socket(usual_host if host is None else host, usual_port if port is None else port)
    with suppress(asyncio.CancelledError):
        await with_access(settings, _check)
        await serve(settings, here, lambda url: output.say(f"serving on {url}"), around=Console)


async def _check(access: "Access") -> None:
    from angarium.cli.invocation.perform import check_setup
    from angarium.operations.needed_permissions import check_permissions

    await check_setup(access)
    names, receiver = access.names, f"{CHECKED}.{CHECKED}"
    await check_permissions(
        access,
        reads=(names.tokens, names.receivers),
        writes=(
            names.publish_event(CHECKED, CHECKED), names.publish_to(receiver), names.receiver(receiver),
            names.token(CHECKED), names.actor_keys.redrive,
        ),
    )  # fmt: skip
