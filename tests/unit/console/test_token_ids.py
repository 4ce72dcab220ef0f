"""The order and the pages of the list of tokens."""

from datetime import UTC, datetime, timedelta

from angarium.console.pages.settings.view import PAGE_TOKENS, token_ids
from streams.buckets.api_tokens import Token

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
KNOWN = {
    f"t{number:03}": Token(
        tenant="acme" if number % 2 else "other", scopes=("read",), hash="",
        created_at=BEGIN + timedelta(seconds=number),
    )
    for number in range(2 * PAGE_TOKENS + 10)
}  # fmt: skip


def test_each_token_is_on_one_page_the_newest_first() -> None:
    seen: list[str] = []
    after: str | None = ""
    while after is not None:
        page = token_ids(KNOWN, None, after)
        assert page.total == len(KNOWN)
        assert len(page.ids) <= PAGE_TOKENS
        seen += page.ids
        after = page.last
    assert seen == sorted(KNOWN, reverse=True)


def test_the_list_of_a_tenant_has_its_tokens_only() -> None:
    page = token_ids(KNOWN, "acme", "")
    assert page.total == len(KNOWN) // 2
    assert {KNOWN[each].tenant for each in page.ids} == {"acme"}


def test_a_token_that_is_gone_leads_to_the_first_page() -> None:
    assert token_ids(KNOWN, "acme", "gone") == token_ids(KNOWN, "acme", "")
    assert token_ids({}, None, "").ids == []
