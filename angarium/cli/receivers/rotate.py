"""`angarium receiver rotate-secret`: a new signing secret, and an end for the old one."""

from typing import TYPE_CHECKING, Any

import click

from angarium.cli.invocation import names, options
from angarium.cli.invocation.perform import perform
from angarium.cli.receivers.flags import SECRET_KINDS
from angarium.terminal import output

if TYPE_CHECKING:
    from actors.configuration.signing_secrets import Kind


@click.command("rotate-secret", short_help="Give a receiver a new signing secret.")
@names.receiver("name")
@click.option(
    "--overlap", default="24h", show_default=True, metavar="AGE",
    help="How long the old secret signs as well: 30m, 24h, 7d; 0s: not at all.",
)  # fmt: skip
@click.option(
    "--secret-kind", type=click.Choice(SECRET_KINDS),
    help="What the new secret signs with; by default what the old one does.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@options.settings_flags(*options.CONNECTION, *options.SEALING)
def rotate_secret(name: str, overlap: str, secret_kind: "Kind | None", as_json: bool, **given: Any) -> None:
    """Sign a receiver's events with a new secret, which is shown once, and for a while with the old one, too.

    The old secret expires by itself: the time is stored in the configuration, and no second command is
    needed.
    """
    from angarium import quantities
    from angarium.operations.configurations.rotate import rotate_secret

    overlap_s = options.quantity("--overlap", quantities.parse_age, overlap)
    done = perform(
        options.settings_of(given), lambda access: rotate_secret(access, name, overlap_s, kind=secret_kind)
    )
    if as_json:
        output.say_json(done)
        return
    output.say(f"changed {name} (revision {done.revision})")
    output.say(f"secret: {done.secret} (not shown again)")
    for key in done.public_keys:
        output.say(f"public key: {key}")
    if done.until is None:
        output.say("only this secret signs the requests")
    else:
        output.say(f"{done.secrets} secrets sign the requests, the old ones until {done.until} at most")
