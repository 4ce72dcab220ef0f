"""Conformance: the running HTTP API does what `/openapi.json` says; generic programs check it.

schemathesis sends examples, values at and beyond their bounds, other methods, wrong and missing headers; each
answer must be one that is described, and none a 5xx. It comes with the extra `conformance`.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest

from tests.support.processes.commands import PATIENCE_S
from tests.support.processes.served import Served, serving

needs_conformance = pytest.mark.skipif(
    find_spec("schemathesis") is None or find_spec("openapi_spec_validator") is None,
    reason="schemathesis is not installed: pip install --editable '.[conformance]'",
)
ENDLESS = "/tail$"
"""Paths whose answer has no end, which schemathesis would read whole, and take for a failure.

`tests/edge/api/test_tail.py` asks them."""
A_RECEIVER = r"/receivers/\{name\}$"
SETTINGS = """
hooks = "lines"

[parameters]
"path.tenant" = "acme"
"path.name" = "billing"
"header.If-Match" = "*"

[[operations]]
include-path = "/v1/jobs/{job}"
# DELETE stops a job, which is shown for days after its end.
checks.use_after_free.enabled = false

[checks.positive_data_acceptance]
# What a schema allows may contradict what is stored, or another parameter.
enabled = false

[checks.negative_data_rejection]
# The precondition is judged before the body; a batch is answered event by event.
expected-statuses = ["207", "400", "401", "404", "405", "409", "412", "413", "415", "422", "428", "503"]
"""
HOOKS = '''
"""Writes a batch as JSON lines, which schemathesis does not know."""

import json

import schemathesis


@schemathesis.serializer("application/x-ndjson")
def lines(context, value):
    return b"\\n".join(json.dumps(each).encode() for each in (value if isinstance(value, list) else [value]))
'''


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("conformance")) as served:
        receiver = f"{served.url}/v1/tenants/acme/receivers/billing"
        put = httpx.put(receiver, headers=served.headers, json={"url": "http://127.0.0.1:9/"})
        assert put.status_code == 201, put.text
        yield served


@needs_conformance
def test_the_description_is_openapi_3_1(served: Served) -> None:
    from openapi_spec_validator import OpenAPIV31SpecValidator

    OpenAPIV31SpecValidator(served.described()).validate()


@needs_conformance
def test_every_answer_about_a_receiver_is_one_that_is_described(served: Served, tmp_path: Path) -> None:
    ask(served, tmp_path, A_RECEIVER, "--phases", "examples,coverage", "--max-examples", "2")


@needs_conformance
@pytest.mark.soak
def test_every_answer_to_any_request_is_one_that_is_described(served: Served, tmp_path: Path) -> None:
    ask(served, tmp_path, ".", "--phases", "examples,coverage,fuzzing,stateful", "--max-examples", "60")


def ask(served: Served, directory: Path, paths: str, *arguments: str) -> None:
    """Let schemathesis ask at all paths in which the expression is found. Fails if it finds anything."""
    (directory / "schemathesis.toml").write_text(SETTINGS)
    (directory / "lines.py").write_text(HOOKS)
    done = subprocess.run(
        [
            Path(sys.executable).with_name("st"), "--config-file", "schemathesis.toml", "run",
            f"{served.url}/openapi.json", "-H", f"Authorization: Bearer {served.token}", "--no-color",
            "--include-path-regex", paths, "--exclude-path-regex", ENDLESS,
            "--seed", "1", "--generation-database", "none", "--continue-on-failure",
            "--request-timeout", "30", *arguments,
        ],
        cwd=directory, env=os.environ | {"PYTHONPATH": str(directory)}, capture_output=True, text=True,
        timeout=10 * PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr
    tested = re.search(r"Tested: (\d+)", done.stdout)
    assert tested is not None, done.stdout
    described = served.described()["paths"]
    wanted = [path for path in described if re.search(paths, path) and not re.search(ENDLESS, path)]
    assert int(tested[1]) == sum(len(described[path]) for path in wanted) > 0
