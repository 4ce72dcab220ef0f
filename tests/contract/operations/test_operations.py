"""Operations, called as the HTTP API calls them: no terminal, and each expected failure is a value."""

import pytest

from angarium.access import Access
from angarium.operations.configurations import remove
from angarium.operations.configurations.get import ShownConfiguration, get_configuration
from angarium.operations.configurations.proposal import PutResult
from angarium.operations.configurations.put import NewConfiguration, put_configuration
from angarium.operations.configurations.remove import RemoveResult, remove_receiver
from angarium.operations.control_requests import ask
from angarium.operations.control_requests.inspection import inspect_receiver
from angarium.operations.control_requests.operator_actions import forget, pause, ping, resume, skip
from angarium.operations.dead_letters.drop import drop
from angarium.operations.dead_letters.find import find_letter
from angarium.operations.dead_letters.listing import NewestLetters, newest
from angarium.operations.dead_letters.redrive import RedrivenLetters, redrive
from angarium.operations.events.accept import accept
from angarium.operations.events.message import NewEvent
from angarium.operations.events.publish import Publisher, PublishResult
from angarium.operations.failures import Kind, NotDone
from angarium.operations.missing_streams import explained
from angarium.operations.receiver_list.listing import Overview, overview
from angarium.settings import Settings
from streams.buckets.stored_configurations import StoredConfigurations
from streams.dead_letters.letters import LetterFilter
from streams.nats.answers import NoResponders, Unanswered

NAME = "acme.billing"
URL = "https://example.com/hook"


def failed(outcome: object, kind: Kind) -> NotDone:
    assert isinstance(outcome, NotDone), outcome
    assert outcome.kind == kind, outcome
    return outcome


async def test_a_receiver_is_put_shown_listed_and_removed(access: Access) -> None:
    new = NewConfiguration(members={"url": URL})
    assert isinstance(await put_configuration(access, NAME, new), PutResult)
    shown = await get_configuration(access, NAME)
    assert isinstance(shown, ShownConfiguration)
    assert shown.members["url"] == URL
    listed = await overview(access, "acme")
    assert isinstance(listed, Overview)
    assert [each.receiver for each in listed.rows] == [NAME]
    assert await remove_receiver(access, NAME) == RemoveResult(
        removed=True, waiting=ask.WaitingEvents(0, certain=False)
    )
    failed(await get_configuration(access, NAME), "not_found")
    failed(await remove_receiver(access, NAME), "not_found")


async def test_problems_are_named_member_by_member(access: Access) -> None:
    wrong = NewConfiguration(members={"url": URL, "order": "any", "concurrency": 0})
    failure = failed(await put_configuration(access, NAME, wrong), "invalid")
    assert sorted(each.partition(":")[0] for each in failure.problems) == ["concurrency", "order"]
    for name in ("billing", "acme._events", "a b.c"):
        failed(await put_configuration(access, name, NewConfiguration(members={"url": URL})), "invalid")
        failed(await inspect_receiver(access, name), "invalid")
    failed(await overview(access, "no tenant"), "invalid")


async def test_without_a_node_there_is_no_answer(access: Access) -> None:
    for control in (inspect_receiver, pause, resume, skip, forget, ping):
        failed(await control(access, NAME), "unanswered")


async def test_nothing_is_done_without_consent(access: Access) -> None:
    await put_configuration(access, NAME, NewConfiguration(members={"url": URL}))
    published = await Publisher(access, NewEvent(tenant="acme", name="billing", type="t")).publish(b"x")
    assert isinstance(published, PublishResult)
    asked: list[str] = []

    def no(waiting: ask.WaitingEvents) -> bool:
        asked.append(str(waiting))
        return False

    assert await forget(access, NAME, no) is None
    kept = ask.WaitingEvents(1, certain=False)
    assert await remove_receiver(access, NAME, no) == RemoveResult(removed=False, waiting=kept)
    assert asked == ["up to 1 event"] * 2


async def test_a_removal_asks_for_consent_even_if_nothing_waits(access: Access) -> None:
    """The receiver itself is lost: its later events become dead letters."""
    await put_configuration(access, NAME, NewConfiguration(members={"url": URL}))
    nothing = ask.WaitingEvents(0, certain=False)
    assert await remove_receiver(access, NAME, lambda _: False) == RemoveResult(
        removed=False, waiting=nothing
    )
    assert isinstance(await get_configuration(access, NAME), ShownConfiguration)


async def test_missing_dead_letters_are_reported_as_missing(access: Access) -> None:
    failed(await find_letter(access, 7), "not_found")
    everything = LetterFilter(receivers="*.*")
    assert await newest(access, everything, 10) == NewestLetters([], more=False)
    sent = await redrive(access, (7,))
    assert isinstance(sent, RedrivenLetters)
    assert sent.missing == [7]
    dropped = await drop(access, (7,))
    assert not isinstance(dropped, NotDone)
    assert (dropped.count, dropped.missing) == (0, [7])


async def test_without_streams_nothing_is_known(access: Access) -> None:
    nowhere = Access(access.js, Settings(prefix="nowhere"))
    for outcome in (
        await get_configuration(nowhere, NAME),
        await newest(nowhere, LetterFilter(receivers="*.*"), 1),
    ):
        failed(outcome, "unavailable")


async def test_only_the_revision_that_was_looked_at_is_removed(
    access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = await put_configuration(access, NAME, NewConfiguration(members={"url": URL}))
    assert isinstance(put, PutResult), put

    async def changed_meanwhile(*_: object) -> ask.WaitingEvents:
        await StoredConfigurations(access.js, access.names).put(
            NAME, b'{"url": "https://other.example.com/"}'
        )
        return ask.WaitingEvents(0, certain=True)

    found = await StoredConfigurations(access.js, access.names).get(NAME)
    assert found is not None
    monkeypatch.setattr(remove, "backlog", changed_meanwhile)
    failed(await remove_receiver(access, NAME, revision=found.revision), "conflict")
    assert await StoredConfigurations(access.js, access.names).get(NAME) is not None


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        (
            [NoResponders("nothing answers")],
            "no stream takes the event (nothing answers), so it is not stored",
        ),
        ([Unanswered("late")], "NATS did not confirm the event (late); it may be stored"),
        (
            [Unanswered("late"), NoResponders("nothing answers")],
            "NATS did not confirm the event (nothing answers); it may be stored",
        ),
    ],
)
async def test_an_unanswered_event_may_be_stored_unless_no_stream_took_it(
    access: Access, monkeypatch: pytest.MonkeyPatch, answers: list[Unanswered], says: str
) -> None:
    left = list(answers)

    async def publish(*_: object) -> Unanswered:
        return left.pop(0) if len(left) > 1 else left[0]

    monkeypatch.setattr(access.js, "publish", publish)
    monkeypatch.setattr("angarium.operations.events.publish.RETRY_PAUSE_S", 0.0)
    event = NewEvent(tenant="acme", name="billing", type="t")
    assert failed(await Publisher(access, event).publish(b"x"), "unanswered").text == says


async def test_an_event_that_the_api_takes_is_not_stored_if_no_stream_took_it(
    access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def publish_all(*_: object) -> list[Unanswered]:
        return [NoResponders("nothing answers")]

    monkeypatch.setattr(access.js, "publish_all", publish_all)
    refusal = failed(await accept(access, NewEvent(tenant="acme", name="billing", type="t")), "unanswered")
    assert "so it is not stored" in refusal.text


async def test_a_failure_names_the_streams_that_are_missing(access: Access) -> None:
    failure = NotDone(kind="not_found", text="there is no token x")
    assert await explained(access, failure) == failure
    await access.js.request(f"$JS.API.STREAM.DELETE.{access.names.tokens}", b"")
    told = await explained(access, failure)
    assert told.text == f"there is no token x; stream {access.names.tokens} is missing"
    assert told.remedy.startswith(": run angarium setup")
    unclear = NotDone(kind="invalid", text="no such scope")
    assert await explained(access, unclear) == unclear
