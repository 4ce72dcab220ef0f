"""A node as those see it that watch it: probes, and Prometheus."""

import re

import httpx
from prometheus_client.parser import text_string_to_metric_families

from angarium.telemetry.metrics.table import NODE, WORKERS
from tests.support.fleet.fleet import Fleet
from tests.support.processes.nodes import Node


class Watcher:
    """A node as a probe and Prometheus see it."""

    def __init__(self, http: httpx.AsyncClient, node: Node) -> None:
        self._http = http
        self._node = node

    async def get(self, path: str, timeout_s: float = 60) -> tuple[int, str]:
        answer = await self._http.get(self._node.monitor + path, timeout=timeout_s)
        return answer.status_code, answer.text

    async def metrics(self) -> dict[str, float]:
        """Each sample of ours by its name and labels; of a histogram its count and its sum."""
        return {
            " ".join([sample.name, *sorted(sample.labels.values())]): sample.value
            for family in text_string_to_metric_families((await self.get("/metrics"))[1])
            for sample in family.samples
            if not sample.name.endswith("_bucket")
        }

    async def names(self) -> set[str]:
        """The names of all our metrics, those without a sample included."""
        return set(re.findall(r"^# TYPE (angarium_\w+)", (await self.get("/metrics"))[1], re.MULTILINE))


def documented() -> set[str]:
    """The metrics of nodes and of their supervisor, in the table that the reference page is made of."""
    return {each.name for each in (*NODE, *WORKERS)}


async def ready(fleet: Fleet, watcher: Watcher) -> None:
    async def is_ready() -> bool:
        return await watcher.get("/readyz") == (200, "ready\n")

    await fleet.until_true(is_ready, "it is ready")
