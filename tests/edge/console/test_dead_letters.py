"""Dead letters in the console: filtered, paged, chosen, and sent again once."""

import re

import pytest

from angarium.console.pages import dead_letters, redrive
from tests.edge.api.conftest import Api
from tests.edge.console.conftest import Browser, signed_in
from tests.support.waiting import until_true

LETTERS = "/console/dead-letters"
NUMBER = re.compile(r'name="number" value="(\d+)"')


def numbers(page: str) -> list[int]:
    """The dead letters on a page, as one may choose them."""
    return [int(each) for each in NUMBER.findall(page)]


async def buried(api: Api) -> None:
    """Bury four events of acme for two reasons, and one of another tenant."""
    await api.receiver("acme.billing")
    for number in range(1, 4):
        await api.bury("acme.billing", number, "rejected" if number == 3 else "expired")
    await api.bury("other.billing", 4)
    await api.bury("acme.mail", 5)


async def test_letters_are_filtered_and_paged(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    await buried(api)
    monkeypatch.setattr(dead_letters, "PAGE_LETTERS", 3)
    async with signed_in(api) as browser:
        first = await browser.get(LETTERS)
        assert numbers(first) == [5, 3, 2]
        following = re.search(r'rel="next" href="([^"]+)"', first)
        assert following is not None
        assert numbers(await browser.get(LETTERS + following[1].replace("&amp;", "&"))) == [1]
        assert numbers(await browser.get(f"{LETTERS}?receiver=mail")) == [5]
        assert numbers(await browser.get(f"{LETTERS}?reason=rejected")) == [3]
        assert "No dead letter matches" in await browser.get(f"{LETTERS}?receiver=nobody")
        await browser.get(f"{LETTERS}?reason=boredom", 404)
        await browser.get(f"{LETTERS}/acme/4", 404)


async def test_chosen_letters_are_sent_again_once_their_number_is_confirmed(api: Api) -> None:
    await buried(api)
    async with signed_in(api) as browser:
        await browser.get(LETTERS)
        answer = await browser.post(
            f"{LETTERS}/acme/redrive", {"which": "chosen", "number": ["1", "2", "4"]}, 200
        )
        assert "2 dead letters" in answer.text
        assert await api.sent_again() == []
        browser.page = answer.text
        assert numbers(answer.text) == [1, 2]
        fields = {"which": "chosen", "number": ["1", "2", "4"], "confirmed_facts": "2"}
        answer = await browser.post(f"{LETTERS}/acme/redrive-now", fields)
        page = await browser.get(answer.headers["location"])
        assert "2 of 2 dead letters sent again." in page
        assert numbers(page) == [5, 3]
    assert sorted(await api.sent_again()) == ["e1", "e2"]


async def test_a_selection_is_sent_again_as_a_job_with_its_progress(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    await buried(api)
    monkeypatch.setattr(redrive, "COUNTED_MAX", 1)
    async with signed_in(api) as browser:
        await browser.get(LETTERS)
        form = {"which": "all", "receiver": "billing", "reason": "expired"}
        answer = await browser.post(f"{LETTERS}/acme/redrive", form, 200)
        assert "More than 1 dead letter of acme.billing, for the reason expired" in answer.text
        assert 'name="confirmed_facts" value="1+"' in answer.text
        browser.page = answer.text
        answer = await browser.post(f"{LETTERS}/acme/redrive-now", form | {"confirmed_facts": "1+"})
        await done(browser, answer.headers["location"])
        assert "Redrive of acme.billing" in browser.page
        assert "<dd>2</dd>" in browser.page
        async with signed_in(api, "other") as other:
            await other.get(answer.headers["location"], 404)
    assert sorted(await api.sent_again()) == ["e1", "e2"]


async def done(browser: Browser, path: str) -> None:
    """Wait until the page of a job says that it is done."""

    async def is_done() -> bool:
        return '<span class="tag good">done</span>' in await browser.get(path)

    await until_true(is_done)


async def test_nothing_is_sent_if_nothing_is_selected(api: Api) -> None:
    await buried(api)
    async with signed_in(api) as browser:
        await browser.get(LETTERS)
        for path in ("redrive", "redrive-now"):
            for fields in (
                {"which": "chosen"}, {"which": "chosen", "number": ["4"]},
                {"which": "all", "receiver": "nobody"},
            ):  # fmt: skip
                await browser.post(f"{LETTERS}/acme/{path}", fields, 422)
    assert await api.sent_again() == []


async def test_an_old_confirmation_sends_no_more_than_was_shown(api: Api) -> None:
    await buried(api)
    async with signed_in(api) as browser:
        await browser.get(LETTERS)
        chosen = {"which": "chosen", "number": ["1", "2"]}
        every = {"which": "all"}
        for fields in (
            chosen,
            chosen | {"confirmed_facts": "3"},
            every,
            every | {"confirmed_facts": "0"},
            every | {"confirmed_facts": "x"},
        ):
            answer = await browser.post(f"{LETTERS}/acme/redrive-now", fields, 409)
            assert "Nothing was done: the selection has changed." in answer.text
            assert f"Send {2 if 'number' in fields else 4} dead letters again" in answer.text
        for number in range(6, 14):
            await api.bury("acme.billing", number)
        answer = await browser.post(f"{LETTERS}/acme/redrive-now", every | {"confirmed_facts": "1"}, 409)
        assert "Send 12 dead letters again" in answer.text
    assert await api.sent_again() == []
