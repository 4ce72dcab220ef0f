"""The API and the ledger's writer tell their metrics on a page of their own, and by OTLP."""

import asyncio
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

from angarium.telemetry.metrics.table import API, LEDGER
from tests.support.fleet.fleet import Fleet, names
from tests.support.free_ports import free_port
from tests.support.otlp_collector import Collector
from tests.support.processes.commands import Terminal, line_with

NATS = "angarium_nats_connected"


async def page(http: httpx.AsyncClient, port: int) -> dict[str, float]:
    """Each sample of ours by name and labels, except buckets; nothing until the port is open."""
    try:
        answer = await http.get(f"http://127.0.0.1:{port}/metrics")
    except httpx.TransportError:
        return {}
    return {
        " ".join([sample.name, *sorted(sample.labels.values())]): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
        if sample.name.startswith("angarium_") and not sample.name.endswith("_bucket")
    }


def told_names(found: dict[str, float]) -> set[str]:
    return {name.partition(" ")[0].removesuffix("_sum").removesuffix("_count") for name in found}


async def test_the_api_counts_its_requests(fleet: Fleet, http: httpx.AsyncClient, tmp_path: Path) -> None:
    terminal, port, collector = Terminal(tmp_path, fleet.server.url), free_port(), Collector()
    terminal.environment |= {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_METRIC_EXPORT_INTERVAL": "50",
        "ANGARIUM_NODE": "front",
    }  # fmt: skip
    token = await asyncio.to_thread(terminal.done, "token", "create", "acme", "--scope", "publish")
    with terminal.start("api", "--port", "0", "--api-monitor", f"127.0.0.1:{port}") as api:
        url = (await asyncio.to_thread(line_with, api.stdout, "serving on ")).split()[-1]
        headers = {"authorization": f"Bearer {token.split()[-1]}"}
        events = f"{url}/v1/tenants/acme/events/order.created"
        statuses = [(await http.post(events, content=b"{}", headers=headers)).status_code for _ in range(3)]
        statuses.append((await http.post(events, content=b"{}")).status_code)
        statuses.append((await http.get(f"{url}/v1/jobs/none", headers=headers)).status_code)
        statuses.append((await http.get(f"{url}/healthz")).status_code)
        assert statuses[:4] == [202, 202, 202, 401]
        expected = {
            "angarium_api_requests_total 2xx publish": 3, "angarium_api_requests_total 4xx publish": 1,
            "angarium_api_requests_total 4xx read": 1, "angarium_api_requests_total 2xx read": 1,
            "angarium_api_request_seconds_count publish": 4, NATS: 1,
        }  # fmt: skip
        found = await page(http, port)
        assert expected.items() <= found.items()
        assert told_names(found) == {each.name for each in API} | {NATS}

        def exported() -> bool:
            return expected.items() <= collector.told("front-api").items()

        await fleet.until(exported, "the collector got the same")
        assert (await http.get(f"http://127.0.0.1:{port}/readyz")).text == "ready\n"
        api.terminate()
        api.communicate()
    collector.stop()


async def test_the_ledger_reports_how_far_it_is_behind(
    fleet: Fleet, http: httpx.AsyncClient, tmp_path: Path
) -> None:
    port, terminal = free_port(), Terminal(tmp_path, fleet.server.url)
    await fleet.start_ready()
    await fleet.configure(["t.good"])
    for _ in range(5):
        await fleet.js.publish(names.publish_to("t.good"), b"{}")
    await fleet.until(lambda: fleet.sink.total == 5, "all events came")
    with terminal.start("ledger", "--ledger-monitor", f"127.0.0.1:{port}") as ledger:
        found: dict[str, float] = {}

        async def caught_up() -> bool:
            found.update(await page(http, port))
            return (
                found.get("angarium_ledger_lag_seconds", 99) < 5 and found["angarium_ledger_facts_total"] >= 5
            )

        await fleet.until_true(caught_up, "it has everything")
        assert told_names(found) == {each.name for each in LEDGER} | {NATS}
        assert (found["angarium_ledger_shares"], found["angarium_ledger_gaps_total"]) == (1, 0)
        assert (found["angarium_ledger_database_connected"], found[NATS]) == (1, 1)
        await fleet.server.kill()

        async def behind() -> bool:
            found.update(await page(http, port))
            return found["angarium_ledger_lag_seconds"] > 2 and found[NATS] == 0

        await fleet.until_true(behind, "it says that it may be behind")
        answer = await http.get(f"http://127.0.0.1:{port}/readyz")
        assert (answer.status_code, answer.text) == (503, "not ready: NATS is not connected\n")
        await fleet.server.start()
        ledger.terminate()
        ledger.communicate()
