"""`test-filter`: what the last events would have done, on the real server."""

import time
from typing import Any

import msgspec
import pytest

from actors.times_as_text import instant_text
from angarium.access import Access
from angarium.operations.configurations.trials.filter_trial import FilterTrial, try_filter
from angarium.operations.failures import NotDone
from angarium.operations.installation.doctor import filters as doctor_filters
from angarium.operations.installation.doctor.filters import check_filters
from streams.installation.topology import Names
from streams.nats.answers import Stored
from streams.nats.jetstream import JetStream
from streams.observation import newest_events

NAME = "acme.billing"


async def put(access: Access, **members: object) -> None:
    await put_other(access, NAME, **members)


async def put_other(access: Access, receiver: str, **members: object) -> None:
    raw = msgspec.json.encode({"url": "https://a.example/"} | members)
    await access.js.publish(access.names.receiver(receiver), raw)


async def publish(
    access: Access, body: bytes, kind: str = "order", *, tenant: str = "acme", region: str = ""
) -> None:
    headers = {"Angarium-Region": region} if region else None
    subject = access.names.publish_event(tenant, kind)
    assert isinstance(await access.js.publish(subject, body, headers), Stored)


async def tried(access: Access, expression: str | None = None, last: int = 100) -> FilterTrial:
    found = await try_filter(access, NAME, expression, last)
    assert isinstance(found, FilterTrial), found
    return found


async def test_each_event_says_what_became_of_it(access: Access) -> None:
    await put(access, filter="length(name) > `3`", region="eu", events=["order.>", "order"])
    await publish(access, b'{"name": "Adalbert"}', region="eu")
    await publish(access, b'{"name": "Ada"}', "order.paid")
    await publish(access, b'{"name": "Adalbert"}', region="us")
    await publish(access, b"<xml/>")
    await publish(access, b"{}")
    await publish(access, b"[%s]" % b",".join([b"{}"] * 20_000))
    await publish(access, b'{"name": "Adalbert"}', "user")
    await publish(access, b'{"name": "Adalbert"}', tenant="other")
    await publish(access, b'{"name": "Adalbert"}', region="Not A Region")
    found = await tried(access)
    assert [each.result for each in found.events] == [
        "sent", "filter", "region", "not_json", "failed", "too_costly",
    ]  # fmt: skip
    assert (found.sent, found.not_sent, found.failed, found.cut) == (1, 5, 3, False)
    assert (found.filter, found.region) == ("length(name) > `3`", ("eu",))
    assert [each.type for each in found.events][:2] == ["order", "order.paid"]
    assert found.events[4].why == "length() takes a string, an array or an object, not null"


async def test_another_filter_can_be_tried_before_it_is_put(access: Access) -> None:
    await put(access)
    for total in range(5):
        await publish(access, b'{"total": %d}' % total)
    assert (await tried(access)).sent == 5
    assert (await tried(access, "total > `2`")).sent == 2


async def test_an_event_with_a_time_counts_once_it_is_due(access: Access) -> None:
    """The filter is asked neither while the event waits, nor about one for a single receiver."""
    await put(access)
    at = {"Angarium-Deliver-At": instant_text(time.time() + 60)}
    subject = access.names.publish_event("acme", "order")
    for number, headers in enumerate(
        [at, at | {"Angarium-To": "billing"}, {"Angarium-Due": "1795000000.1"},
         {"Angarium-Due": "1795000000.2", "Angarium-To": "billing"},
         {"Angarium-Deliver-At": "2026-01-01T00:00:00Z"}]
    ):  # fmt: skip
        assert isinstance(await access.js.publish(subject, b"%d" % number, headers), Stored)
    found = await tried(access)
    assert ([each.position for each in found.events], found.sent) == ([3, 5], 2)


async def test_only_the_last_events_are_tried_oldest_first(
    access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(newest_events, "FIRST_SPAN", 8)
    await put(access, events=["order"])
    for number in range(50):
        await publish(access, b"%d" % number, "order" if number % 5 == 0 else "user")
    for last, positions in (
        (1, [46]),
        (3, [36, 41, 46]),
        (10, list(range(1, 50, 5))),
        (1000, list(range(1, 50, 5))),
    ):
        found = await tried(access, last=last)
        assert [each.position for each in found.events] == positions
        assert not found.cut


async def test_a_search_that_is_cut_says_so_and_has_the_newest(
    access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(newest_events, "SEARCHED_MAX", 10)
    await put(access)
    for number in range(30):
        await publish(access, b"%d" % number)
    found = await tried(access)
    assert found.cut
    positions = [each.position for each in found.events]
    assert positions == list(range(31 - len(positions), 31))
    assert 5 <= len(positions) <= 10


async def test_large_events_are_read_within_a_bound(access: Access, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newest_events, "KEPT_BYTES_MAX", 1000)
    await put(access)
    for _ in range(10):
        await publish(access, b'"%s"' % (b"x" * 400))
    found = await tried(access)
    assert found.cut
    assert [each.position for each in found.events] == [9, 10]
    monkeypatch.setattr(newest_events, "FIRST_SPAN", 2)
    monkeypatch.setattr(newest_events, "READ_BYTES_MAX", 1000)
    found = await tried(access)
    assert found.cut
    assert [each.position for each in found.events] == [9, 10]


@pytest.mark.parametrize(
    ("expression", "last", "code", "text"),
    [
        ("a >", 5, "invalid", "filter: not JMESPath at its end"),
        (
            'region == "eu"',
            5,
            "invalid",
            "filter: \"eu\" is the member eu of the body; write the text as 'eu'",
        ),
        ("sort(a)", 5, "invalid", "filter: a filter needs no sort()"),
        (None, 0, "invalid", "the number of events must be 1 to 1000"),
        (None, 1001, "invalid", "the number of events must be 1 to 1000"),
    ],
)
async def test_a_trial_that_cannot_be_made_is_refused_with_the_reason(
    access: Access, expression: str | None, last: int, code: str, text: str
) -> None:
    await put(access)
    refused = await try_filter(access, NAME, expression, last)
    assert isinstance(refused, NotDone)
    assert refused.kind == code
    assert text in refused.text


async def test_a_receiver_that_does_not_exist_or_is_invalid_is_refused(access: Access) -> None:
    refused = await try_filter(access, NAME)
    assert isinstance(refused, NotDone)
    assert refused.kind == "not_found"
    await access.js.publish(access.names.receiver(NAME), b'{"filter": "a"}')
    refused = await try_filter(access, NAME, "a")
    assert isinstance(refused, NotDone)
    assert "url: required, but missing" in refused.text


async def test_the_doctor_names_a_filter_that_fails_on_most_events(access: Access) -> None:
    await put(access, filter="length(total) > `0`")
    await put_other(access, "acme.well", filter="total > `1000`")
    await put_other(access, "acme.plain")
    await put_other(access, "acme.broken", filter="a >")
    for total in range(4):
        await publish(access, b'{"total": %d}' % total)
    assert await check_filters(access.js, access.installation) == []
    for total in range(3):
        await publish(access, b'{"total": "%d"}' % total)
    (finding,) = await check_filters(access.js, access.installation)
    assert (finding.level, finding.subject) == ("warning", "filters")
    assert finding.sentence == (
        "the filter of acme.billing fails on 4 of its last 7 events: length() takes a string, an array or an "
        "object, not number: correct the filter (angarium receiver test-filter acme.billing)"
    )


async def test_the_doctor_checks_a_few_filters_only(access: Access, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_filters, "RECEIVERS_MAX", 2)
    for number in range(4):
        await put_other(access, f"acme.r{number}", filter="length(@)")
    for _ in range(5):
        await publish(access, b"1")
    found = await check_filters(access.js, access.installation)
    assert [each.text.split()[3] for each in found] == ["acme.r0", "acme.r1"]


async def test_the_doctor_reads_the_events_of_a_tenant_once(
    access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[str]()

    async def noted(js: JetStream, names: Names, tenant: str, *given: Any) -> newest_events.NewestEvents:
        asked.append(tenant)
        return await newest_events.newest_events(js, names, tenant, *given)

    monkeypatch.setattr(doctor_filters, "newest_events", noted)
    for name in ("acme.a", "acme.b", "acme.c", "shop.a"):
        await put_other(access, name, filter="length(@)")
    for _ in range(5):
        await publish(access, b"1")
    found = await check_filters(access.js, access.installation)
    assert [each.text.split()[3] for each in found] == ["acme.a", "acme.b", "acme.c"]
    assert asked == ["acme", "shop"]
