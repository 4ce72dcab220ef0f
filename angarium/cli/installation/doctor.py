"""`angarium doctor`: problems of the installation, and their remedies."""

from typing import Any

import click

from angarium.cli.invocation import options
from angarium.terminal import output
from angarium.terminal.run import run

COLOURS = {"ok": "green", "warning": "yellow", "problem": "red"}


@click.command(short_help="Check the installation, and say what to do.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@options.settings_flags(*options.CONNECTION, *options.SEALING, *options.INSTALLATION)
def doctor(as_json: bool, **given: Any) -> None:
    """Check the installation and its receivers, and show each problem with its remedy.

    The exit status is 1 if there is a problem with the installation. An unhealthy receiver is a warning.
    """
    from msgspec import to_builtins

    from angarium.operations.installation.doctor.all_checks import check_everything

    findings = run(check_everything(options.settings_of(given)))
    if as_json:
        output.say_json(to_builtins(findings))
    else:
        for finding in findings:
            word = output.styled(f"{finding.level:7}", COLOURS[finding.level])
            output.say_wrapped(output.visible(finding.sentence), f"{word}  {finding.subject:12}  ")
    problems = sum(not finding.ok for finding in findings)
    if problems:
        raise click.ClickException(f"{problems} problem{'s' * (problems > 1)} found")
