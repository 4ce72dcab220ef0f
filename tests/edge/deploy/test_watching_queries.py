"""The queries of alerts and dashboard, asked of a real Prometheus that watches a whole installation."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from streams.server.free_ports import free_ports
from tests.support.fleet.sink import Reply, Sink
from tests.support.plain_http import plain_client
from tests.support.processes.commands import Terminal, line_with
from tests.support.processes.roles import serving
from tests.support.waiting import COMMAND_LOOK_S, until_true
from tests.support.watching.prometheus import Prometheus, exporting, needs_prometheus, watching
from tests.support.watching.queries import ALERT_QUERIES, ALERTS, PANEL_QUERIES, RULES, Selector, selectors

EVENTS = 5
ABSENT = {'angarium_api_requests_total{status="5xx"}'}
"""Series that an installation without a fault does not have, as the rules choose them."""
ALLOWED = ("--allow-http", "--allow-network", "127.0.0.0/8")
CHOSEN = {"$namespace": ".*", "$__rate_interval": "1m"}
"""Values that Grafana would put in the place of its variables."""


def filled(query: str) -> str:
    """A query of the dashboard without variables."""
    for name, value in CHOSEN.items():
        query = query.replace(name, value)
    return query


@pytest.fixture
async def prometheus(tmp_path: Path) -> AsyncIterator[Prometheus]:
    """A Prometheus with the rules, over two workers, an API, a ledger and NATS, all of which have work."""
    own, node, api, ledger, exporter = free_ports(5)
    targets = {"nodes": [node], "api": [api], "ledger": [ledger], "nats": [exporter]}
    (tmp_path / "nats").mkdir()
    async with AsyncExitStack() as stack:
        sink = await stack.enter_async_context(Sink())
        sink.manners["acme.bad"] = lambda _: Reply(400)
        server = stack.enter_context(serving(tmp_path / "nats"))
        [told] = (tmp_path / "nats" / "ports").glob("*.ports")
        [monitor] = json.loads(told.read_text())["monitoring"]
        stack.enter_context(exporting(monitor, exporter))
        roles = {each: Terminal(tmp_path, server.url(each)) for each in ("operator", "node", "api", "ledger")}
        done = roles["operator"].done
        await asyncio.to_thread(done, "setup")
        for name in ("acme.good", "acme.bad"):
            put = ("receiver", "put", name, "--url", sink.url(name), "--event", "order.*")
            await asyncio.to_thread(done, *put, "--rate", "100/second")
        token = (await asyncio.to_thread(done, "token", "create", "acme", "--scope", "publish")).split()[-1]
        commands = {
            "node": ("--monitor", f"127.0.0.1:{node}", "--workers", "2", *ALLOWED),
            "api": ("--api-monitor", f"127.0.0.1:{api}", "--port", "0"),
            "ledger": ("--ledger-monitor", f"127.0.0.1:{ledger}"),
        }
        running = {
            role: stack.enter_context(roles[role].start(role, *options)) for role, options in commands.items()
        }
        url = (await asyncio.to_thread(line_with, running["api"].stdout, "serving on ")).split()[-1]
        async with plain_client(headers={"authorization": f"Bearer {token}"}) as http:
            for _ in range(EVENTS):
                events = f"{url}/v1/tenants/acme/events/order.created"
                assert (await http.post(events, content=b"{}")).status_code == 202
        prometheus = stack.enter_context(watching(tmp_path, own, targets, [RULES]))
        yield prometheus
        for each in running.values():
            each.terminate()
            await asyncio.to_thread(each.communicate)


@needs_prometheus
async def test_every_query_has_a_value_and_no_alert_fires_while_all_is_well(prometheus: Prometheus) -> None:
    async def has_worked() -> bool:
        """True when the installation has delivered, and two scrapes of each process differ."""
        delivered = await prometheus.ask('sum(angarium_deliveries_total{outcome="delivered"})')
        seen = await prometheus.ask("count(rate(process_cpu_seconds_total[1m]) and on (instance) up == 1)")
        stored = await prometheus.ask("angarium_ledger_facts_total > 0")
        return delivered == [EVENTS] and seen == [4] and bool(stored)

    await until_true(has_worked, COMMAND_LOOK_S)
    await the_rules_are_evaluated(prometheus)
    without = {name for name, query in PANEL_QUERIES.items() if not await prometheus.ask(filled(query))}
    assert without == set()
    asked: set[Selector] = {each for query in ALERT_QUERIES.values() for each in selectors(query)}
    series = {each.text for each in asked if not await prometheus.ask(each.text)}
    assert series == ABSENT

    async def no_page_is_pending() -> bool:
        return await prometheus.ask('ALERTS{severity="page"}') == []

    await until_true(no_page_is_pending, COMMAND_LOOK_S)


async def the_rules_are_evaluated(prometheus: Prometheus) -> None:
    """Waits until Prometheus has evaluated each rule, without an error."""
    states: dict[str, str] = {}

    async def evaluated() -> bool:
        groups = (await prometheus.get("rules"))["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        states.update({each["name"]: each.get("lastError", each["health"]) for each in rules})
        return "unknown" not in states.values()

    await until_true(evaluated, COMMAND_LOOK_S)
    assert states == {each["alert"]: "ok" for each in ALERTS}
