"""`angarium demo`: shows it all, and ends by itself."""

import click

from angarium.terminal import output
from angarium.terminal.run import run_long


@click.command(
    short_help="Show it all, with a crash in the middle.",
    epilog="All runs on this machine, on free ports, in a temporary directory; nothing is left behind.",
)
@click.option("--json", "as_json", is_flag=True, help="The verdict in JSON, and nothing else.")
def demo(as_json: bool) -> None:
    """Deliver some hundred real payloads to six receivers while the node is killed, and judge what came.

    One receiver is healthy, one limited to 20 requests a second, one flaky, one dead for the first seconds,
    one slow and in relaxed order, one rejects what then is redriven. Each event goes to all that subscribe
    to its type. The node is killed with -9 half-way and started again. At the end the receivers' own records
    are judged, each promise by itself. Ends with 1 if one was broken; takes less than a minute.
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
    broken = sum(not finding.kept for finding in findings)
    if broken:
        raise click.ClickException(
            f"{broken} of {len(findings)} promises were broken; the logs are in {directory}"
        )
