"""Each page, over a real node: what it shows, and what it shows when there is nothing."""

from tests.edge.api.conftest import Api
from tests.edge.console.conftest import signed_in
from tests.support.fleet.sink import Sink


async def test_an_empty_installation_says_what_to_do_next(api: Api) -> None:
    async with signed_in(api, "*", ["read", "manage", "operate"]) as browser:
        overview = await browser.get("/console/")
        assert "There is no receiver yet." in overview
        assert "There is no receiver yet." in await browser.get("/console/receivers")
        assert "Name a tenant" in await browser.get("/console/dead-letters")
        assert "There is no dead letter" in await browser.get("/console/dead-letters?tenant=acme")
        assert "No node is alive" in await browser.get("/console/fleet")
        assert "Find an event" in await browser.get("/console/events")


async def test_a_receiver_shows_its_phase_its_last_answer_and_its_configuration(
    owned: Api, sink: Sink
) -> None:
    await owned.receiver("acme.billing", url=sink.url("acme.billing"), secrets=["whsec_" + "A" * 32])
    async with signed_in(owned) as browser:
        page = await browser.get("/console/receivers/acme/billing")
        assert '<span class="tag good">idle</span>' in page
        assert "whsec_" not in page
        assert "acme.billing" in await browser.get("/console/receivers")
