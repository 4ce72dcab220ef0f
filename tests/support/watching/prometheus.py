"""A real Prometheus on loopback, and a page like that of the exporter of NATS."""

import asyncio
import contextlib
import json
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")
needs_prometheus = pytest.mark.skipif(PROMETHEUS is None, reason="prometheus is not installed: see .ci/run")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed: see .ci/run")


class PrometheusRefusal(Exception):
    """A query that Prometheus does not understand or cannot evaluate."""


class Prometheus:
    """A server on a port of 127.0.0.1."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def ask(self, query: str) -> list[float] | None:
        """The values of an instant query; None while the server does not answer."""
        found = await self.get("query", query=query)
        return found and [float(each["value"][1]) for each in found["result"]]

    async def get(self, path: str, **parameters: str) -> Any:
        """The data of an answer of its API; None while the server does not answer."""
        return await asyncio.to_thread(self._get, path, urllib.parse.urlencode(parameters))

    def _get(self, path: str, parameters: str) -> Any:
        address = f"http://127.0.0.1:{self._port}/api/v1/{path}?{parameters}"
        try:
            with urllib.request.urlopen(address) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            if error.code == HTTPStatus.SERVICE_UNAVAILABLE:
                return None  # It is still starting.
            raise PrometheusRefusal(error.read().decode()) from error
        except OSError:
            return None


@contextlib.contextmanager
def watching(
    directory: Path, port: int, targets: Mapping[str, Sequence[int]], rules: Sequence[Path] = ()
) -> Iterator[Prometheus]:
    """A Prometheus that scrapes these ports, by job, and itself, five times a second."""
    assert PROMETHEUS is not None
    jobs = {**targets, "prometheus": [port]}
    config = {
        "global": {"scrape_interval": "200ms", "scrape_timeout": "200ms", "evaluation_interval": "200ms"},
        "rule_files": [str(each) for each in rules],
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": [f"127.0.0.1:{each}" for each in ports]}]}
            for job, ports in jobs.items()
        ],
    }
    (directory / "prometheus.yml").write_text(json.dumps(config))
    command = (
        PROMETHEUS, f"--config.file={directory}/prometheus.yml", f"--storage.tsdb.path={directory}/tsdb",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=error",
    )  # fmt: skip
    process = subprocess.Popen(command)
    try:
        yield Prometheus(port)
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def exporting(nats_monitor: str, port: int) -> Iterator[None]:
    """Serves the sizes and limits of the streams of a nats-server, as the exporter of NATS names them."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = _stream_metrics(nats_monitor).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Logs nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Page)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _stream_metrics(nats_monitor: str) -> str:
    asked = f"{nats_monitor}/jsz?accounts=true&streams=true&config=true"
    with urllib.request.urlopen(asked) as answer:
        accounts: list[dict[str, Any]] = json.load(answer)["account_details"]
    lines = list[str]()
    for account in accounts:
        for stream in account.get("stream_detail", ()):
            labels = f'account="{account["name"]}",server_name="nats",stream_name="{stream["name"]}"'
            state, limit = stream["state"], stream["config"]["max_bytes"]
            values = {"total_bytes": state["bytes"], "last_seq": state["last_seq"], "limit_bytes": limit}
            lines += [f"jetstream_stream_{name}{{{labels}}} {value}\n" for name, value in values.items()]
    return "".join(lines)
