"""The dead letters that a command is about: by their numbers, or by receiver, tenant and flags."""

import time
from collections.abc import Sequence
from typing import Any

import click

from actors.ids import check_tenant, split_receiver
from angarium import quantities
from angarium.cli.invocation import options
from angarium.operations.dead_letters.pages import Wanted
from streams.dead_letters.letters import REASONS, LetterFilter
from streams.dead_letters.malformed import MALFORMED_RECEIVER

DIGITS_MAX = 18
"""Digits of a letter's number, at most."""


def wanted(which: Sequence[str], given: dict[str, Any], *, everything: bool, limit: int | None) -> Wanted:
    """The selection by arguments and flags; with `everything`, all letters if there are none.

    Raises click.UsageError, InvalidName and BadQuantity.
    """
    selected = any(given[name] for name in ("reasons", "since", "until"))
    if which and all(text.isdecimal() and len(text) <= DIGITS_MAX for text in which):
        if selected or everything or limit is not None:
            raise click.UsageError("give letter numbers or selecting flags, not both")
        return tuple(map(int, dict.fromkeys(which)))
    if len(which) > 1:
        raise click.UsageError("give letter numbers, or one receiver or tenant")
    if not (which or selected or everything):
        raise click.UsageError("which letters? give numbers, a receiver, a tenant, or --all")
    return by_flags(which[0] if which else None, given)


def by_flags(receiver: str | None, given: dict[str, Any]) -> LetterFilter:
    """The selection by receiver, tenant or nothing, together with the flags. Raises the same."""
    now = time.time()
    since, until = (
        given[name] and options.quantity(f"--{name}", quantities.parse_time, given[name], now)
        for name in ("since", "until")
    )
    reasons = frozenset(given["reasons"])
    if unknown := reasons.difference(REASONS):
        raise click.UsageError(f"--reason {min(unknown)}: unknown reason; use one of {', '.join(REASONS)}")
    return LetterFilter(receivers=_pattern(receiver), reasons=reasons, since=since, until=until)


def _pattern(receiver: str | None) -> str:
    if receiver is None:
        return "*.*"
    tenant, dot, name = receiver.partition(".")
    if dot and name != MALFORMED_RECEIVER:
        return ".".join(split_receiver(receiver))
    return f"{check_tenant(tenant)}.{name or '*'}"


def missing_text(positions: Sequence[int]) -> str:
    """The complaint that letters which were named are not there."""
    return f"there is no letter {', '.join(map(str, positions))}"


def counted(count: int) -> str:
    return quantities.count_text(count, "letter")
