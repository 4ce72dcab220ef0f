"""Fields that no page of ours sends: each gets an answer about the field, and never one about a defect."""

from typing import Any

from angarium.console import admission
from tests.edge.api.conftest import Api
from tests.edge.console.conftest import Browser, signed_in

ADDRESS_MAX = 10_000
"""Characters that are sent in an address: servers refuse longer ones."""
RECEIVER = "/console/receivers/acme/billing"
ODD = (
    "1e999", "-1", "nan", "9" * 300, "\x00", "\u202e", "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59-23:59", "99999999999999999999d", f"0.{'0' * 29}1/day", "[" * 60_000,
    '{"headers": {"a": "\\ud800"}}', f'{{"x": {"9" * 5000}}}', '{"secrets": "…", "transform": "…"}',
)  # fmt: skip
FORM = (f"{RECEIVER}/configuration", {"url": "https://example.com/", "revision": "1"})
FORMS: dict[str, tuple[str, dict[str, str]]] = {
    "rate": FORM, "rate.burst": FORM, "timeout_s": FORM, "rest": FORM, "revision": FORM,
    "since": (f"{RECEIVER}/replay", {"rate": "1/second"}),
    "until": (f"{RECEIVER}/replay", {"since": "1h"}),
    "overlap": (f"{RECEIVER}/rotate-secret", {"confirmed_facts": "1"}),
    "lasts": ("/console/settings/tokens", {"tenant": "acme", "scope": "read"}),
    "note": ("/console/settings/links", {"tenant": "acme", "lasts": "1h"}),
}  # fmt: skip
QUERIES: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("/replay", "since", {}), ("/replay", "rate", {"since": "1h"}), ("/audit", "since", {}),
    ("/audit", "until", {}), ("", "status", {}), ("", "error", {}), ("", "since", {}),
)  # fmt: skip
BODIES = (b"a=1&" * 10_000, b"csrf=%ff", b"\xff\xfe", b"csrf=%ed%a0%80", b"&" * 60_000)


async def understood(browser: Browser, method: str, path: str, **form: Any) -> None:
    """Send a request, which has to get an answer that is no defect and no limit."""
    answer = await browser.client.request(method, path, **form)
    assert answer.status_code in (200, 303, 404, 409, 413, 422), (path[:80], answer.status_code, answer.text)


async def test_odd_fields_are_wrong_fields(watched: Api) -> None:
    await watched.receiver("acme.billing")
    async with signed_in(watched, "*", ["read", "manage", "operate"]) as browser:
        await browser.get(f"{RECEIVER}/configuration")
        for odd in ODD:
            for name, (path, others) in FORMS.items():
                fields = {"csrf": browser.csrf} | others | {name: odd}
                await understood(browser, "POST", path, data=fields)
            for page, name, others in QUERIES:
                if len(odd) < ADDRESS_MAX:
                    await understood(browser, "GET", f"{RECEIVER}{page}", params=others | {name: odd})
        for body in BODIES:
            headers = {"content-type": admission.FORM_TYPE}
            for path in (f"{RECEIVER}/configuration", "/console/portal/acme"):
                await understood(browser, "POST", path, content=body, headers=headers)
