"""`angarium token …`: who may use the HTTP API."""

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from angarium.cli.invocation import options
from angarium.cli.invocation.perform import perform
from angarium.terminal import output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from angarium.operations.tokens.listing import ListedToken

SCOPES = ("publish", "read", "manage", "operate")
HEADINGS = ("id", "tenant", "scopes", "rate", "created", "by", "expires", "last used", "note")
NARROW_COLUMNS = ("id", "tenant", "scopes", "expires", "last used")
CUT_COLUMNS = ("scopes", "tenant")


@click.group(short_help="Create, list and revoke tokens of the HTTP API.")
def token() -> None:
    """Create, list and revoke tokens of the HTTP API."""


@token.command(short_help="Create a token.")
@click.argument("tenant")
@click.option(
    "--scope", "scopes", multiple=True, required=True, type=click.Choice(SCOPES),
    help="Scope of the token (repeatable).",
)  # fmt: skip
@click.option("--expires", metavar="AGE", help="Lifetime: 12h, 30d (default: until it is revoked).")
@click.option("--rate", type=float, metavar="N", help="Limit of events per second that it may publish.")
@click.option("--note", default="", help="A note on its purpose.")
@click.option("--json", "as_json", is_flag=True, help="Print the token and its id as JSON.")
@options.settings_flags(*options.CONNECTION)
def create(
    tenant: str, scopes: tuple[Any, ...], expires: str | None, rate: float | None, note: str, as_json: bool,
    **given: Any,
) -> None:  # fmt: skip
    """Create a token for a TENANT, or for '*', which is all of them. It is shown once; only its hash is kept.

    publish: publish events. read: see receivers and what happened. manage: change receivers. operate: the
    fleet and the tokens, for '*' only.
    """
    from angarium import quantities
    from angarium.operations.tokens.create import NewToken, create

    settings = options.settings_of(given)
    lasts_s = None if expires is None else options.quantity("--expires", quantities.parse_age, expires)
    new = NewToken(tenant=tenant, scopes=scopes, lasts_s=lasts_s, rate=rate, note=note)
    made = perform(settings, lambda access: create(access, new))
    if as_json:
        output.say_json({"id": made.id, "token": made.text})
    else:
        output.say(made.text)
        output.note(f"note: it is not shown again; angarium token revoke {made.id} ends it")


@token.command("list", short_help="List the tokens.")
@click.option("--wide", is_flag=True, help="Show all columns uncut, as in a pipe.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@options.settings_flags(*options.CONNECTION)
def list_(wide: bool, as_json: bool, **given: Any) -> None:
    """List all tokens: tenant, scopes, who made them, and the last use (within ten minutes)."""
    from msgspec import to_builtins

    from angarium.operations.tokens.listing import all_tokens

    tokens = perform(options.settings_of(given), all_tokens)
    if as_json:
        output.say_json(to_builtins(tokens))
        return
    say(tokens, wide=wide)


def say(tokens: "Sequence[ListedToken]", *, wide: bool) -> None:
    """Print the tokens, at a terminal only the columns that 80 characters hold."""
    rows = [cells(each) for each in tokens]
    if wide or not output.is_terminal():
        output.say_table(HEADINGS, [list(row.values()) for row in rows], wide=wide)
        return
    narrow = [[row[heading] for heading in NARROW_COLUMNS] for row in rows]
    output.say_table(NARROW_COLUMNS, narrow, cut=CUT_COLUMNS)
    output.note_left_out(HEADINGS, NARROW_COLUMNS)


def cells(listed: "ListedToken") -> dict[str, str | None]:
    """The row of a token, by column."""
    return {
        "id": listed.id,
        "tenant": listed.tenant,
        "scopes": ",".join(listed.scopes),
        "rate": None if listed.rate is None else f"{listed.rate:g}/s",
        "created": _minute(listed.created_at),
        "by": listed.created_by,
        "expires": _minute(listed.expires_at),
        "last used": _minute(listed.used_at),
        "note": listed.note,
    }


@token.command(short_help="Revoke a token.")
@click.argument("token_id", metavar="ID")
@options.settings_flags(*options.CONNECTION)
def revoke(token_id: str, **given: Any) -> None:
    """Revoke a token by its ID: after a second at most, it is refused everywhere."""
    from angarium.operations.tokens.revoke import revoke

    perform(options.settings_of(given), lambda access: revoke(access, token_id))
    output.say(f"revoked {token_id}")


def _minute(at: datetime | None) -> str | None:
    return None if at is None else at.strftime("%Y-%m-%dT%H:%MZ")
