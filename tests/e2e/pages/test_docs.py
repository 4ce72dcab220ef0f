"""README and docs are true: their commands work in order, and names and links exist.

A page that starts no `angarium dev` is read while one runs. Commands that need the nats CLI, Node or Go are
left out if these are not installed.
"""

import re
import subprocess
from pathlib import Path

import pytest

from actors.configuration.policy import Offline, Policy, Retry
from tests.house.english import ARCHAIC
from tests.support.pages.newcomer import newcomer
from tests.support.pages.pages import Page, Typed, all_pages, logged
from tests.support.pages.samples import TOOLS, can_run, lay_out, missing
from tests.support.processes.commands import ROOT

PAGES = all_pages()
README = next(page for page in PAGES if page.path == ROOT / "README.md")
RECEIVERS = Page(ROOT / "docs" / "receivers.md")
TROUBLESHOOTING = Page(ROOT / "docs" / "troubleshooting.md")
DEV = Typed("angarium dev", ["…", "ready: NATS on …"])


@pytest.mark.parametrize("page", [page for page in PAGES if page.typed], ids=str)
def test_the_shown_commands_work(page: Page, tmp_path: Path) -> None:
    typed = [each for each in page.typed if can_run(each.command)]
    lay_out(tmp_path)
    with newcomer(tmp_path, fresh=page == README) as walker:
        for name, source in page.programs.items():
            walker.save(name, source)
        if not any(each.command.startswith(DEV.command) for each in typed):
            walker.type(DEV)
        for each in typed:
            walker.type(each)


@pytest.mark.parametrize("tool", TOOLS)
def test_reports_missing_tools_as_skipped(tool: str) -> None:
    """Commands without their tool are left out of the other tests silently."""
    if why := missing(tool):
        pytest.skip(why)


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_program_is_run(page: Page) -> None:
    commands = [each.command for each in page.typed]
    assert "" not in page.programs, "the first line of a program names its file"
    assert [name for name in page.programs if not any(name in command for command in commands)] == []


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_lead_somewhere(page: Page) -> None:
    assert list(page.broken_links()) == []


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_prose_keeps_to_its_width(page: Page) -> None:
    assert list(page.wide()) == []


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_words_are_usual(page: Page) -> None:
    assert ARCHAIC.findall(page.prose) == []


def test_everything_that_is_named_exists() -> None:
    """One test checks all pages, since each process that looks parses the whole product."""
    missing = {str(page): names for page in PAGES if (names := list(page.missing()))}
    assert missing == {}


def test_an_id_names_one_event_and_not_an_order() -> None:
    types: dict[str, set[str]] = {}
    for page in PAGES:
        for name, found in page.published_types.items():
            types.setdefault(name, set()).update(found)
    assert "order-17-created" in types
    assert {name: found for name, found in types.items() if len(found) > 1} == {}


DECISIONS = [page for page in PAGES if page.path.parent.name == "decisions" and page.path.stem != "README"]


@pytest.mark.parametrize("page", DECISIONS, ids=str)
def test_decisions_have_one_shape(page: Page) -> None:
    context, decision, *reasons, consequences, tests = page.sections
    assert (context, decision, consequences, tests) == ("Context", "Decision", "Consequences", "Tests")
    assert reasons in (["Argument"], ["Measured"], ["Argument", "Measured"])


def test_every_decision_is_listed_once() -> None:
    index = (ROOT / "docs/decisions/README.md").read_text()
    assert sorted(re.findall(r"\]\(([\w-]+\.md)\)", index)) == sorted(page.path.name for page in DECISIONS)


TOOLS_OF_A_NEWCOMER = {
    "make": "mkdir -p dist && touch dist/angarium-1.whl",
    "pipx": 'cp "$STUBS/installed" "$STUBS/angarium"',
    "python3": 'mkdir -p "$3/bin"; cp "$STUBS/pip" "$3/bin"; echo "PATH=$3/bin:\\$PATH" >"$3/bin/activate"',
    "pip": 'cp "$STUBS/installed" "${0%/*}/angarium"',
    "installed": "echo done",
}
"""Stand-ins for the commands of the installation: they only install commands, or find them."""


def test_each_block_of_the_installation_works_in_its_order(tmp_path: Path) -> None:
    blocks = README.scripts_under("Install")
    assert len(blocks) == 2
    for number, block in enumerate(blocks):
        stubs, home = tmp_path / f"stubs-{number}", tmp_path / f"home-{number}"
        stubs.mkdir()
        home.mkdir()
        for name, does in TOOLS_OF_A_NEWCOMER.items():
            (stubs / name).write_text(f"#!/bin/sh\n{does}\n")
            (stubs / name).chmod(0o755)
        environment = {"PATH": f"{stubs}:/usr/bin:/bin", "HOME": str(home), "STUBS": str(stubs)}
        typed = ["sh", "-e", "-c", block]
        done = subprocess.run(
            typed, cwd=home, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_every_member_of_a_configuration_is_explained() -> None:
    members = set(Policy.__struct_encode_fields__) - {"retry", "offline"}
    members |= {f"retry.{each}" for each in Retry.__struct_fields__}
    members |= {f"offline.{each}" for each in Offline.__struct_fields__}
    assert set(RECEIVERS.explained("A receiver's configuration")) == members


def test_every_line_of_the_log_is_explained() -> None:
    explained = {name for name in TROUBLESHOOTING.explained("What the log says") if name.count(".") == 1}
    assert logged("debug", "info", "warning", "error", "exception") == explained


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_mechanism_of_a_promise_names_its_test(page: Page) -> None:
    assert list(page.unproven()) == []


# ---- and would be found if it were not so


@pytest.mark.parametrize(
    ("shown", "fits"),
    [
        (["one", "two"], True),
        (["o…", "…w…"], True),
        (["…", "two"], True),
        ([], True),
        (["one"], False),
        (["o.e", "two"], False),
    ],
)
def test_an_output_is_compared_as_a_whole(shown: list[str], fits: bool, tmp_path: Path) -> None:
    with newcomer(tmp_path) as walker:
        try:
            walker.type(Typed("echo one; echo two", shown))
        except AssertionError:
            assert not fits
        else:
            assert fits


def test_missing_parts_are_found(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(
        "[a](page.md#here) [b](page.md#there) [c](none.md) [d](https://example.com)\n# Here\n"
        "`streams/journal/fence.py` `streams/none.py` "
        "`streams/journal/fence.py::append` `streams/journal/fence.py::none`\n"
        "`Journal._cut` `Journal.none` `Content-Type`\n"
        "mutant `rebase`, mutants `no-lease`,\n`none-such`\n"
        "| rests on | fails without it |\n| --- | --- |\n| this | `tests/conftest.py` |\n| that | nothing |\n"
    )
    assert list(Page(path).broken_links()) == ["page.md#there", "none.md"]
    assert list(Page(path).missing()) == [
        "none-such", "streams/none.py", "streams/journal/fence.py::none", "Journal.none",
    ]  # fmt: skip
    assert list(Page(path).unproven()) == ["| that | nothing |"]


def test_two_types_under_one_id_are_found(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(
        "```console\n$ angarium publish acme --type order.created --id order-1 {}\n```\n"
        "```sh\ncurl --json {} -H 'Angarium-Id: order-1' $tenant/events/order.paid\n```\n"
        '```json\n[{"type": "order.sent", "data": 1, "id": "order-1"}]\n```\n'
    )
    assert Page(path).published_types == {"order-1": {"order.created", "order.paid", "order.sent"}}


def test_wide_lines_are_found(tmp_path: Path) -> None:
    path, wide = tmp_path / "page.md", "word " * 30
    path.write_text(f"- {wide}\n| {wide} |\n- {'a' * 200}\n```sh\n{wide}\n```\nshort\n")
    assert list(Page(path).wide()) == [f"- {wide}"]
