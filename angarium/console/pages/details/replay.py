"""A replay: past events of a receiver, counted, then sent again by a job that shows its progress.

The first form says which events; the preview counts them, for a period whose ends are fixed from then on. If
another number is found when it is confirmed, nothing is sent, and the new number is shown.
"""

import re
import secrets
import time
from typing import Annotated

from litestar import Response, get, post
from litestar.params import FromPath, QueryParameter
from msgspec import Struct

from actors.errors import BadInput
from actors.times_as_text import instant_text
from angarium import quantities
from angarium.api.api_state import InjectedAccess
from angarium.api.background.jobs import UNFINISHED_MAX
from angarium.api.problems import ProblemRaised, result_of
from angarium.console.admission import FORM, Form, field, needs
from angarium.console.console_state import ConsoleState, InjectedConsole, InjectedSession
from angarium.console.pages.action_previews import with_some_more
from angarium.console.paths import ConsoleRequest
from angarium.console.rendering.responses import page, redirect
from angarium.operations.configurations.get import get_configuration
from angarium.operations.jobs.begin import begin_replay
from angarium.operations.replays.preview import Preview, PreviewBounds, preview
from angarium.operations.replays.resendable import ReplayFilter
from angarium.quantities import count_text

PATH = "/receivers/{tenant:str}/{name:str}/replay"
RATE_DEFAULT = "100/second"
SINCE_DEFAULT = "1h"
TYPES_MAX = 16
READ_EVENTS_MAX = 10_000
READ_BYTES_MAX = 16 << 20
"""Events that a preview reads, and their bytes: if there are more, it says so."""
INVALID_STATUS = 422
CHANGED = "Nothing was done: other events would be sent now. Review the new preview."
_COUNT = re.compile(r"([0-9]{1,15})(\+?)\Z")

TimeText = Annotated[str, QueryParameter(max_length=64)]
TypesText = Annotated[str, QueryParameter(max_length=1024)]


class ReplayForm(Struct, frozen=True):
    """The form as a person filled it in."""

    since: str
    until: str
    types: str
    rate: str


class AskedReplay(Struct, frozen=True):
    """The replay that a form means: the events, and how many are sent in a second at most."""

    wanted: ReplayFilter
    per_second: float


class CountedReplay(Struct, frozen=True):
    """A replay with the events that it would send; the same `key` begins it only once."""

    asked: AskedReplay
    form: ReplayForm
    found: Preview
    key: str

    @property
    def confirmed_facts(self) -> str:
        """The number of events, as the form of the preview sends it back."""
        return f"{self.found.events}{'+' if self.found.more else ''}"

    @property
    def words(self) -> str:
        """Their number for people."""
        events = count_text(self.found.events, "event")
        return f"more than {events}" if self.found.more else events

    @property
    def lasts_s(self) -> float:
        """The time that it takes at least."""
        return self.found.events / self.asked.per_second

    def is_unchanged(self, confirmed_facts: str) -> bool:
        """True if a preview with that number is close enough to what would be sent now."""
        if not (found := _COUNT.match(confirmed_facts)) or not self.found.events:
            return False
        return bool(found[2]) or (not self.found.more and self.found.events <= with_some_more(int(found[1])))


@get(PATH, opt=needs("manage"))
async def preview_replay(
    request: ConsoleRequest,
    console: InjectedConsole,
    session: InjectedSession,
    tenant: FromPath[str],
    name: FromPath[str],
    since: TimeText = "",
    until: TimeText = "",
    types: TypesText = "",
    rate: TimeText = RATE_DEFAULT,
) -> Response[bytes]:
    """The form of a replay; once it is filled in, the number of events."""
    form = ReplayForm(since, until, types, rate)
    receiver, counted, why = f"{tenant}.{name}", None, ""
    result_of(await get_configuration(console.access, receiver))
    if since:
        try:
            counted = await _counted(console, tenant, receiver, asked_replay(form, time.time()))
        except BadInput as error:
            why = str(error)
        except ProblemRaised as raised:
            if raised.problem.status != INVALID_STATUS:
                raise
            why = raised.problem.detail
    return page(
        request, "replay.html", session, status=INVALID_STATUS if why else 200, tenant=tenant, name=name,
        form=form, counted=counted, why=why, again="", since_default=SINCE_DEFAULT,
    )  # fmt: skip


@post(PATH, status_code=200, opt=needs("manage"))
async def do_replay(
    request: ConsoleRequest,
    console: InjectedConsole,
    session: InjectedSession,
    access: InjectedAccess,
    tenant: FromPath[str],
    name: FromPath[str],
) -> Response[bytes]:
    """Begin the replay that was previewed."""
    form: Form = request.scope["state"][FORM]
    receiver = f"{tenant}.{name}"
    given = ReplayForm(*(field(form, each) for each in ReplayForm.__struct_fields__))
    asked = asked_replay(given, time.time())
    counted = await _counted(console, tenant, receiver, asked)
    if not counted.is_unchanged(field(form, "confirmed_facts")):
        return page(
            request, "replay.html", session, status=409, tenant=tenant, name=name, form=given,
            counted=counted, why="", again=CHANGED, since_default=SINCE_DEFAULT,
        )  # fmt: skip
    if not console.api.jobs.has_room(receiver):
        raise ProblemRaised(
            429, "rate", f"{UNFINISHED_MAX} replays of the tenant are unfinished; wait for one, or stop it"
        )
    with console.api.control_limits.admit(tenant):
        key = field(form, "key")
        begun = result_of(await begin_replay(access, receiver, asked.wanted, asked.per_second, key))
    if not begun.mine:
        session.notice("Another replay of this receiver is unfinished: this is its progress.")
    console.api.jobs.wake()
    return redirect(f"/console/jobs/{begun.job.id}")


def asked_replay(form: ReplayForm, now: float) -> AskedReplay:
    """The replay that a form means; without an end it ends now. Raises BadInput."""
    since = quantities.parse_time(form.since.strip(), now)
    until = quantities.parse_time(form.until.strip(), now) if form.until.strip() else now
    if until <= since:
        raise BadInput("the end must be later than the beginning")
    types = tuple(form.types.replace(",", " ").split())
    if len(types) > TYPES_MAX:
        raise BadInput(f"at most {TYPES_MAX} types")
    per_second = quantities.parse_rate(form.rate.strip() or RATE_DEFAULT).per_second
    return AskedReplay(ReplayFilter(since=since, until=until, types=types), per_second)


async def _counted(console: ConsoleState, tenant: str, receiver: str, asked: AskedReplay) -> CountedReplay:
    """The replay with what it would send. Raises `ProblemRaised`."""
    bounds = PreviewBounds(events_max=READ_EVENTS_MAX, bytes_max=READ_BYTES_MAX)
    with console.api.control_limits.admit(tenant):
        found = result_of(await preview(console.access, receiver, asked.wanted, bounds))
    wanted = asked.wanted
    form = ReplayForm(
        since=instant_text(wanted.since), until=instant_text(wanted.until or 0.0),
        types=" ".join(wanted.types), rate=f"{asked.per_second:.12g}/second",
    )  # fmt: skip
    return CountedReplay(asked, form, found, secrets.token_hex(16))
