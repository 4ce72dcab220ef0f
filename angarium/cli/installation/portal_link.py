"""`angarium portal-link`: a link that signs the people of a tenant in to the console."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from angarium.cli.invocation import names, options
from angarium.cli.invocation.perform import perform
from angarium.terminal import output

if TYPE_CHECKING:
    from angarium.settings import Settings


@click.command("portal-link", short_help="Make a link with which a tenant's people use the console.")
@names.one_tenant("tenant")
@click.option("--manage", is_flag=True, help="Let them also change receivers and send events again.")
@click.option("--for", "lasts", default="1h", show_default=True, metavar="AGE", help="30m, 8h; 24h at most.")
@click.option("--note", default="", help="A note on its purpose, for `angarium token list`.")
@click.option("--json", "as_json", is_flag=True, help="Print the link and the id of its token as JSON.")
@options.settings_flags("console_url", *options.CONNECTION)
def portal_link(tenant: str, manage: bool, lasts: str, note: str, as_json: bool, **given: Any) -> None:
    """Make a link that signs the people of a TENANT in to the console, for an hour, without a token.

    Who has the link may open it as often as they like until it expires. They see that tenant only.
    """
    from angarium import quantities
    from angarium.operations.tokens.portal_links import NewPortalLink, create_portal_link

    settings = _with_address(options.settings_of(given))
    if settings.console_url is None:
        raise click.UsageError("--console-url is missing: give the address at which people reach the console")
    lasts_s = options.quantity("--for", quantities.parse_age, lasts)
    new = NewPortalLink(tenant=tenant, manage=manage, lasts_s=lasts_s, note=note)
    made = perform(settings, lambda access: create_portal_link(access, new))
    names.note_if_unknown(settings, tenant)
    if as_json:
        output.say_json({"id": made.id, "url": made.url, "expires_at": made.token.expires_at})
    else:
        output.say(made.url)
        output.note(f"note: it is not shown again; angarium token revoke {made.id} ends it and its sessions")


def _with_address(settings: "Settings") -> "Settings":
    """The settings with the console of the `angarium dev` that runs in this directory, if it is for that."""
    from angarium.development.directory import api_of, nats_of

    directory = Path(options.DEV_DIRECTORY)
    if settings.console_url is None and ",".join(settings.nats) == nats_of(directory):
        return replace(settings, console_url=api_of(directory))
    return settings
