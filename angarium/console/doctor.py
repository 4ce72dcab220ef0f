"""`angarium doctor`: what is wrong with the installation, and what to do about it."""

from typing import Any

import click

from angarium.console import flags, output


@click.command(short_help="Say what is wrong, and what to do about it.")
@click.option("--json", "as_json", is_flag=True, help="The findings in JSON.")
@flags.takes(*flags.CONNECTION, *flags.INSTALLATION)
def doctor(as_json: bool, **given: Any) -> None:
    """Look at the installation and say what is wrong, with the remedy; ends with 1 if anything is."""
