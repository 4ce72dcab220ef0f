"""`angarium demo`: delivers, crashes and checks, then ends by itself."""

import click

from angarium.terminal import output
from angarium.terminal.run import run_long


@click.command(
    short_help="Run a self-checking demo, with a node killed half-way.",
    epilog="It runs on this machine only, on free ports, in a temporary directory; nothing is left behind.",
)
@click.option("--json", "as_json", is_flag=True, help="Print only the verdict, in JSON.")
def demo(as_json: bool) -> None:
    """Deliver some hundred real payloads to eight receivers, kill the node half-way, and check the result.

    One receiver is healthy and proves itself before the first event, one is limited to 20 requests a second,
    one is flaky, one is dead for the first seconds, one is slow and in relaxed order, one gets up to 20
    events in a request, one rejects events, which are then redriven, and one has a hidden limit of 20
    requests a second, which is found. Each event goes to all receivers that subscribe to its type. The node
    is killed with -9 half-way and started again.
    At the end each promise is checked against the receivers' own records. The exit status is 1 if one was
    broken. Takes less than a minute.
    """
    from msgspec import to_builtins

    from angarium.demo import table
    from angarium.demo.perform import perform

    findings, directory = run_long(perform(quiet=as_json))
    if as_json:
        output.say_json(to_builtins(findings))
    else:
        output.say()
        for line in table.verdict(findings):
            output.say(line)
    broken = sum(not finding.is_kept for finding in findings)
    if broken:
        raise click.ClickException(
            f"{broken} of {len(findings)} promises were broken; the logs are in {directory}"
        )
