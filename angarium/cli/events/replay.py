"""`angarium replay`: sends a receiver past events again."""

from typing import TYPE_CHECKING, Any

import click

from actors.times_as_text import age_text
from angarium.cli.invocation import names, options
from angarium.cli.invocation.perform import CommandFailed, perform
from angarium.settings import Settings
from angarium.terminal import output
from angarium.terminal.progress import progress

if TYPE_CHECKING:
    from angarium.operations.replays.preview import Preview
    from angarium.operations.replays.replay import ReplayReport
    from angarium.operations.replays.resendable import ReplayFilter

RATE = "100/second"


@click.command("replay", short_help="Send a receiver past events again.")
@names.receiver("receiver")
@click.option("--since", metavar="TIME", help="Only events since this time: 2h, 3d, 2026-01-31T12:00:00Z.")
@click.option("--until", metavar="TIME", help="Only events before this time.")
@click.option(
    "--type", "types", multiple=True, metavar="PATTERN", help="Only of these types: order.>, … (repeatable)."
)
@click.option("--rate", help=f"Limit, such as 300/minute [default: {RATE}; with --resume, the previous one]")
@click.option("--dry-run", is_flag=True, help="Show what would be sent, and send nothing.")
@click.option("--resume", is_flag=True, help="Continue an unfinished replay.")
@click.option("--abandon", is_flag=True, help="End an unfinished replay.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@options.settings_flags(*options.CONNECTION)
def replay(
    receiver: str, since: str | None, until: str | None, types: tuple[str, ...], rate: str | None,
    dry_run: bool, resume: bool, abandon: bool, as_json: bool, **given: Any,
) -> None:  # fmt: skip
    """Send a receiver the events of a period again, as far as the deliveries stream still has them.

    Each event is a new delivery with a new number, its old id and the header angarium-again, in the old
    order, after the events that wait now. Each is sent once, even if this command is interrupted: --resume
    continues.
    """
    import time

    from angarium import quantities
    from angarium.operations.replays.resendable import ReplayFilter

    if resume and abandon:
        raise click.UsageError("--resume and --abandon contradict each other; give one")
    begins = {
        "--since": since is not None,
        "--until": until is not None,
        "--type": types,
        "--dry-run": dry_run,
    }
    if (resume or abandon) and (wrong := next((flag for flag, value in begins.items() if value), None)):
        raise click.UsageError(f"{'--resume' if resume else '--abandon'} goes without {wrong}")
    if not (resume or abandon or since is not None):
        raise click.UsageError("give --since, --resume or --abandon")
    now, per_second = time.time(), None
    if rate is not None:
        per_second = options.quantity("--rate", quantities.parse_rate, rate).per_second
    settings = options.settings_of(given)
    if abandon:
        _abandon(settings, receiver, as_json=as_json)
        return
    wanted = None if since is None else ReplayFilter(
        since=options.quantity("--since", quantities.parse_time, since, now), types=types,
        until=None if until is None else options.quantity("--until", quantities.parse_time, until, now),
    )  # fmt: skip
    if dry_run and wanted is not None:
        _preview(settings, receiver, wanted, per_second, as_json=as_json)
        return
    _replay(settings, receiver, wanted, per_second, as_json=as_json)


def _abandon(settings: Settings, receiver: str, *, as_json: bool) -> None:
    from angarium.operations.replays.replay import give_up_replay

    sent = perform(settings, lambda access: give_up_replay(access, receiver))
    if as_json:
        output.say_json({"abandoned": receiver, "sent": sent})
    else:
        output.say(f"gave up the replay for {receiver}; {sent} had been sent")


def _preview(
    settings: Settings, receiver: str, wanted: "ReplayFilter", per_second: float | None, *, as_json: bool
) -> None:
    from angarium import quantities
    from angarium.operations.replays.preview import preview
    from angarium.operations.replays.replay import PER_SECOND_DEFAULT

    found = perform(settings, lambda access: preview(access, receiver, wanted))
    if as_json:
        output.say_json(found)
        return
    what = quantities.count_text(found.events, "event")
    lasts = age_text(found.events / (per_second or PER_SECOND_DEFAULT))
    output.say(f"would send {what} ({quantities.bytes_text(found.bytes)}), in {lasts}")
    if found.oldest_at is not None:
        output.say(f"published {found.oldest_at} to {found.newest_at}")
    for event_type, count in sorted(found.types.items()):
        output.say(f"  {output.visible(event_type)}: {count}")
    _kept(found)


def _replay(
    settings: Settings, receiver: str, wanted: "ReplayFilter | None", rate: float | None, *, as_json: bool
) -> None:
    from actors.times_as_text import instant_text
    from angarium.operations.replays.replay import replay
    from angarium.quantities import count_text
    from streams.resending.replay import Replayed

    def waiting(began_at: float, wait_s: float) -> None:
        began = instant_text(began_at)
        output.note(
            f"the replay of {began} was not released; waiting {wait_s:.0f} s to see whether it still runs"
        )

    begun: list[Replayed] = []

    def interrupted() -> str:
        sent = f"{count_text(begun[0].sent, 'event')} sent; " if begun else ""
        return f"{sent}angarium replay {receiver} --resume continues it, --abandon gives it up"

    done = perform(
        settings,
        lambda access: replay(
            access, receiver, wanted, rate, progress=progress, waiting=waiting, began=begun.append
        ),
        interrupted=interrupted,
    )
    if as_json:
        output.say_json(done)
    else:
        sent = count_text(done.sent, "event")
        output.say(f"sent {sent} again (angarium-again: {done.again})")
        if done.too_large:
            left = count_text(len(done.too_large), "event")
            output.say(f"left out {left} that the stream no longer accepts: too large")
        if done.taken:
            left = count_text(len(done.taken), "event")
            output.say(f"left out {left} whose message id another publisher has used")
    _kept(done)
    if done.purged:
        output.note("note: some that were to be sent were purged meanwhile: the stream no longer keeps them")
    if done.stopped:
        raise CommandFailed(
            f"{done.stopped}; continue with angarium replay {receiver} --resume when events have been settled"
        )


def _kept(found: "Preview | ReplayReport") -> None:
    from angarium.operations.replays.resendable import LEFT_OUT_COUNTED_MAX, NOT_SETTLED_YET
    from angarium.quantities import count_text

    if waiting := found.left_out.get(NOT_SETTLED_YET, 0):
        more = "at least " if waiting >= LEFT_OUT_COUNTED_MAX else ""
        what = count_text(waiting, "event")
        output.note(f"note: {more}{what} left out: not settled yet (angarium inspect {found.receiver})")
    if found.kept_since is not None:
        output.note(f"note: events published before {found.kept_since} are no longer kept")
