"""`angarium listen`: a receiver on this machine that verifies and shows each request."""

from typing import Any

import click

from angarium.terminal.run import run

USUAL_PORT = 9000


@click.command(
    short_help="Run a test receiver that shows and verifies each request.",
    epilog="It is reachable only from this machine unless you set --host. Stop it with Ctrl-C.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535),
              help=f"Port to listen on (default: {USUAL_PORT}, or a free one; 0: a free one).")  # fmt: skip
@click.option("--secret", "secrets", multiple=True, metavar="whsec_…",
              help="Secret, or public key (whpk_…), to verify signatures with (repeatable).")  # fmt: skip
@click.option("--status", type=click.IntRange(200, 599), default=200, show_default=True,
              help="Status to answer with.")  # fmt: skip
@click.option("--delay", "delay_s", type=click.FloatRange(0, 3600), default=0.0, metavar="SECONDS",
              help="Time to wait before each answer.")  # fmt: skip
@click.option("--fail-every", type=click.IntRange(1), metavar="N", help="Fail every Nth request.")
@click.option("--fail-status", type=click.IntRange(200, 599), default=503, show_default=True,
              help="Status of a failure.")  # fmt: skip
@click.option("--retry-after", metavar="SECONDS|DATE", help="Retry-After header of a failure.")
@click.option("--count", "count_max", type=click.IntRange(1), metavar="N", help="Stop after N requests.")
@click.option("--body", "whole_body", is_flag=True, help="Show whole bodies, not only their beginning.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per request.")
def listen(
    host: str,
    port: int | None,
    secrets: tuple[str, ...],
    count_max: int | None,
    whole_body: bool,
    as_json: bool,
    **behaviour: Any,
) -> None:
    """Run a receiver on this machine that answers, verifies signatures, and shows each request in a line.

    Repeats (a number seen before) and gaps in the numbers are marked, for each path separately. Handshakes
    are answered, too. With --secret the exit status is 1 if a signature was wrong.
    """
    from angarium.delivery.signing import InvalidSecret, parse_key
    from angarium.development.listen import Behaviour, Listening

    try:
        keys = [parse_key(secret, "--secret") for secret in secrets]
    except InvalidSecret as error:
        raise click.UsageError(str(error)) from None
    listening = Listening(Behaviour(**behaviour), keys, secrets, whole_body=whole_body, as_json=as_json)
    run(listening.run(host, USUAL_PORT if port is None else port, count_max, or_another=port is None))
    if listening.wrong:
        raise click.ClickException(
            f"{listening.wrong} of {listening.count} requests were not signed by --secret"
        )
