"""The house rules, held by reading the code: who may import whom, what is pure, how large a file may grow.

Each rule is a function from one module to what is wrong with it. All rules are run over all modules, and each
rule over a made-up module that breaks it, since a rule that finds nothing looks just like one that cannot.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.house.english import (
    bullets_name_members,
    diagrams_keep_their_lines,
    docstrings_name_what_exists,
    first_lines_are_whole,
    first_lines_say_what_it_is,
    folders_name_their_folders,
    folders_say_what_to_read_first,
    introductions_name_what_exists,
    modules_introduce_themselves,
    reasons_name_their_subject,
    titles_name_their_subject,
    words_are_usual,
)
from tests.house.errors_and_wire import (
    annotations_are_real,
    errors_have_one_root,
    nothing_is_left_for_later,
    nothing_is_swallowed,
    subjects_are_cut_where_they_are_made,
    tenants_are_cut_in_one_place,
    wire_names_stand_once,
)
from tests.house.imports import (
    arrows_point_down,
    files_of_tests_stand_alone,
    layers_hold,
    only_streams_knows_nats,
    operations_do_not_talk,
    the_console_shares_little,
    the_core_is_pure,
    the_machine_holds_nothing,
)
from tests.house.layers import LAYERS
from tests.house.module import KIT, OURS, PACKAGES, ROOT, Module, modules
from tests.house.sizes_and_names import (
    ENTRIES_MAX,
    FILES_MAX,
    WIDE_FOLDERS,
    classes_have_names_of_their_own,
    files_are_short,
    functions_are_short,
    lines_are_short,
    names_say_something,
    numbers_say_what_they_bound,
    private_names_stay_private,
    truths_are_named_as_questions,
    words_have_one_meaning,
)

RULES: tuple[Callable[[Module], Iterator[str]], ...] = (
    arrows_point_down,
    layers_hold,
    files_of_tests_stand_alone,
    only_streams_knows_nats,
    operations_do_not_talk,
    the_console_shares_little,
    the_core_is_pure,
    the_machine_holds_nothing,
    files_are_short,
    functions_are_short,
    lines_are_short,
    names_say_something,
    modules_introduce_themselves,
    folders_say_what_to_read_first,
    folders_name_their_folders,
    introductions_name_what_exists,
    docstrings_name_what_exists,
    bullets_name_members,
    first_lines_say_what_it_is,
    first_lines_are_whole,
    diagrams_keep_their_lines,
    reasons_name_their_subject,
    titles_name_their_subject,
    words_are_usual,
    numbers_say_what_they_bound,
    words_have_one_meaning,
    classes_have_names_of_their_own,
    truths_are_named_as_questions,
    private_names_stay_private,
    nothing_is_swallowed,
    nothing_is_left_for_later,
    errors_have_one_root,
    wire_names_stand_once,
    subjects_are_cut_where_they_are_made,
    tenants_are_cut_in_one_place,
    annotations_are_real,
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_house_keeps(rule: Callable[[Module], Iterator[str]]) -> None:
    broken = [f"{module.name}: {what}" for module in modules() for what in rule(module)]
    assert not broken, "\n" + "\n".join(broken)


KIT_RULES = (
    files_are_short,
    functions_are_short,
    lines_are_short,
    names_say_something,
    modules_introduce_themselves,
    folders_say_what_to_read_first,
    first_lines_say_what_it_is,
    first_lines_are_whole,
    words_are_usual,
    numbers_say_what_they_bound,
    nothing_is_swallowed,
    nothing_is_left_for_later,
)
"""The rules for the kit, which is for older Pythons, and stands alone."""


@pytest.mark.parametrize("rule", KIT_RULES, ids=lambda rule: rule.__name__)
def test_the_kit_keeps(rule: Callable[[Module], Iterator[str]]) -> None:
    broken = [f"{module.name}: {what}" for module in modules(KIT) for what in rule(module)]
    assert not broken, "\n" + "\n".join(broken)


BREACHES = [
    (arrows_point_down, "actors.machine.state", "import streams"),
    (arrows_point_down, "actors.runtime.host", "from angarium import settings"),
    (arrows_point_down, "actors.machine.state", "from . import ids"),
    (arrows_point_down, "streams.reading.inbox", "from actors.runtime import host"),
    (arrows_point_down, "streams.reading.inbox", "from actors.runtime.wake_timer import WakeTimer"),
    (arrows_point_down, "streams.reading.inbox", "def f():\n    import angarium.node.app"),
    (arrows_point_down, "angarium.delivery.http_exchange.http1", "from streams.nats.wire import Wire"),
    (arrows_point_down, "angarium.delivery.http_exchange.http1", "from angarium import settings"),
    (arrows_point_down, "angarium.delivery.http_exchange.http1", "import angarium.node.app"),
    (arrows_point_down, "angarium.node.app", "from tests.sim import world"),
    (layers_hold, "actors.machine.state", "from actors.runtime.host import Host"),
    (layers_hold, "actors.machine.state", "from actors import status"),
    (layers_hold, "actors.machine.state", "from actors.machine.evolve import evolve"),
    (layers_hold, "actors.machine.decide", "from actors.machine.scheduling.view import View"),
    (layers_hold, "streams.nats.wire", "import streams.installation.topology"),
    (layers_hold, "streams.routing.router", "from streams.fleet.lease import Lease"),
    (layers_hold, "angarium.operations.events.publish", "from angarium.cli import options"),
    (layers_hold, "angarium.anything_new", ""),
    (layers_hold, "angarium.delivery.http_exchange.http1", "import angarium.delivery.connections.pool"),
    (layers_hold, "angarium.delivery.connections.pool", "from angarium.delivery import http1_transport"),
    (layers_hold, "angarium.delivery.anything_new", ""),
    (only_streams_knows_nats, "angarium.demo", "from nats.js import api"),
    (only_streams_knows_nats, "actors.runtime.host", "import nats"),
    (files_of_tests_stand_alone, "tests.edge.test_free_ports", "from tests.edge.test_usage import run"),
    (operations_do_not_talk, "angarium.operations.configurations.put", "import click"),
    (
        operations_do_not_talk,
        "angarium.operations.configurations.put",
        "from angarium.terminal import output",
    ),
    (the_console_shares_little, "angarium.console.app", "from angarium.api.routes import receivers"),
    (the_console_shares_little, "angarium.console.pages.fleet", "from angarium.cli.live import top"),
    (layers_hold, "angarium.api.server", "from angarium.console.app import Console"),
    (the_core_is_pure, "actors.machine.state", "import asyncio"),
    (the_core_is_pure, "actors.anything_new", "import time"),
    (the_core_is_pure, "actors.machine.state", "from logging import getLogger"),
    (the_core_is_pure, "actors.runtime.host", "import random"),
    (the_core_is_pure, "actors.machine.state", "from actors.runtime.actor import Actor"),
    (the_core_is_pure, "actors.machine.state", "from datetime import datetime\nx = datetime.now()"),
    (the_core_is_pure, "actors.machine.state", "x = open('state')"),
    (the_core_is_pure, "actors.machine.state", "async def f(): ..."),
    (the_machine_holds_nothing, "actors.machine.state", "class A:\n    def f(self): self.at = 1"),
    (the_machine_holds_nothing, "actors.machine.state", "class A:\n    def f(self): self.at += 1"),
    (files_are_short, "actors.machine.state", "x = 1\n" * 501),
    (functions_are_short, "actors.machine.state", "async def f():\n" + "    x = 1\n" * 70),
    (lines_are_short, "actors.machine.state", "x = '" + "y" * 105 + "'"),
    (names_say_something, "angarium.cli.utils", ""),
    (names_say_something, "streams.common.pull", ""),
    (names_say_something, "streams.queue", ""),
    (names_say_something, "streams.nats.wire", "def publish(to): ..."),
    (names_say_something, "streams.nats.wire", "class A:\n    def __init__(self, a): self._to = a"),
    (names_say_something, "streams.nats.wire", "class A:\n    def f(self, a): self._of_shard[1] = a"),
    (names_say_something, "streams.nats.wire", "class A:\n    def f(self): self._of_shard: int = 1"),
    (modules_introduce_themselves, "actors.machine.state", "x = 1"),
    (modules_introduce_themselves, "tests.unit.actors", ""),
    (folders_say_what_to_read_first, "streams.journal.__init__", '"""The journal of a shard."""'),
    (folders_name_their_folders, "angarium.node.__init__", '"""A node. Read `app` and `metrics` first."""'),
    (introductions_name_what_exists, "streams.journal.__init__", '"""The journal: read `questionnaire`."""'),
    (docstrings_name_what_exists, "streams.producer", 'def f():\n    """Calls `questionnaire`."""'),
    (
        bullets_name_members,
        "streams.producer",
        'class Place:\n    """A place.\n\n    - `position`, `floor`: where it is.\n    """\n\n    floor: int',
    ),
    (first_lines_say_what_it_is, "streams.producer", '"""What nobody needs any more."""'),
    (first_lines_say_what_it_is, "streams.producer", 'def f():\n    """Of all consumers."""'),
    (first_lines_say_what_it_is, "streams.producer", 'TURN_S = 1.0\n"""How long a turn takes."""'),
    (first_lines_say_what_it_is, "streams.producer", 'def f():\n    """Tells whether it is."""'),
    (first_lines_say_what_it_is, "streams.producer", 'def f():\n    """Ask for it once more."""'),
    (first_lines_say_what_it_is, "tests.support.waiting", 'def until():\n    """Whether it holds."""'),
    (first_lines_are_whole, "streams.producer", '"""Purges messages: their\nstreams.\n"""'),
    (
        first_lines_are_whole,
        "streams.producer",
        'def f():\n    """Purges messages: their\n    streams."""',
    ),
    (
        diagrams_keep_their_lines,
        "streams.producer",
        '"""Purges.\n\n    f(a) -> b   g(b) -> c\n\nSo.\n"""',
    ),
    (reasons_name_their_subject, "tests.sim.test_sim", 'def test_a_death():\n    """And it is final."""'),
    (reasons_name_their_subject, "tests.sim.test_sim", 'def test_a_death():\n    """Its lease ends."""'),
    (reasons_name_their_subject, "tests.sim.test_sim", 'def test_a_death():\n    """Else it lives."""'),
    (
        reasons_name_their_subject,
        "tests.sim.test_sim",
        'async def test_a_death():\n    """Whoever dies."""',
    ),
    (titles_name_their_subject, "tests.edge.test_free_ports", "def test_what_is_free_is_found(): ..."),
    (titles_name_their_subject, "tests.edge.test_free_ports", "def test_nor_is_a_second_one(): ..."),
    (titles_name_their_subject, "tests.edge.test_free_ports", "def test_a_port_is_free_however_late(): ..."),
    (titles_name_their_subject, "tests.edge.test_free_ports", "def test_a_search_goes_on(): ..."),
    (titles_name_their_subject, "tests.edge.test_free_ports", "def test_a_log_tells_of_a_port(): ..."),
    (titles_name_their_subject, "tests.edge.test_free_ports", "def test_a_client_is_told_to_wait(): ..."),
    (titles_name_their_subject, "tests.edge.test_free_ports", "def test_the_log_says_it_too(): ..."),
    (
        titles_name_their_subject,
        "tests.edge.test_free_ports",
        "def test_a_search_is_made_now_and_then(): ...",
    ),
    (titles_name_their_subject, "tests.sim.scenarios.rates", "def behind_one_that_is_slow(): ..."),
    (titles_name_their_subject, "tests.edge.test_free_ports", "class TestTheLease: ..."),
    (titles_name_their_subject, "tests.edge.test_free_ports", "def test_a_port_that_is_none(): ..."),
    (titles_name_their_subject, "tests.edge.test_free_ports", "def test_a_port_holds_up_no_other(): ..."),
    (titles_name_their_subject, "tests.edge.test_free_ports", "def test_the_ports_are_those_that_fit(): ..."),
    (titles_name_their_subject, "tests.edge.test_free_ports", "def test_a_look_finds_a_port(): ..."),
    (titles_name_their_subject, "tests.edge.test_free_ports", f"def test_{'port_' * 16}(): ..."),
    (titles_name_their_subject, "tests.edge.test_free_ports", "class TestPortsThatAreTaken: ..."),
    (words_are_usual, "tests.support.waiting", "x = 1  # Nobody else."),
    (words_are_usual, "tests.support.waiting", "def wait_for_nobody(): ..."),
    (words_are_usual, "streams.producer", "# Whoever purges"),
    (words_are_usual, "streams.producer", "# The tenant with most, and none but for it."),
    (words_are_usual, "streams.producer", "# The tools for who operates it"),
    (words_are_usual, "tests.support.waiting", "def is_kept_over_restarts(): ..."),
    (words_are_usual, "streams.producer", '"""Order holds over every crash."""'),
    (words_are_usual, "streams.producer", '"""Take note of what is on record."""'),
    (words_are_usual, "streams.producer", '"""The end; None where there is none."""'),
    (words_are_usual, "streams.producer", '"""The end as of the last look."""'),
    (words_are_usual, "streams.producer", '"""Purging what nobody needs."""'),
    (words_are_usual, "angarium.node.app", "x = 'two nodes beside another'"),
    (numbers_say_what_they_bound, "streams.producer", "PATIENCE_S = 5.0"),
    (words_have_one_meaning, "streams.reading.reader", "class Reader:\n    def _new_cursor(self): ..."),
    (words_have_one_meaning, "streams.reading.reader", "def read(self):\n    self.cursors += 1"),
    (words_have_one_meaning, "actors.memory.unacked", "def release(position, mark): ..."),
    (classes_have_names_of_their_own, "angarium.node.node", "class Journal: ..."),
    (truths_are_named_as_questions, "angarium.node.node", "@property\ndef ready(self) -> bool: ..."),
    (nothing_is_swallowed, "streams.reading.pull", "try:\n    f()\nexcept Exception:\n    pass"),
    (
        nothing_is_swallowed,
        "streams.producer",
        "try:\n    f()\nexcept (OSError, BaseException):\n    ...",
    ),
    (
        nothing_is_swallowed,
        "streams.reading.pull",
        "for x in y:\n    try:\n        f()\n    except:\n        continue",
    ),
    (nothing_is_swallowed, "streams.reading.pull", "with contextlib.suppress(Exception):\n    f()"),
    (nothing_is_left_for_later, "streams.reading.pull", "x = 1  # TODO later"),
    (errors_have_one_root, "streams.nats.errors", "class Lost(Exception): ..."),
    (errors_have_one_root, "angarium.delivery.target", "class Invalid(ValueError): ..."),
    (wire_names_stand_once, "streams.producer", "headers = {'Nats-Msg-Id': 'a'}"),
    (wire_names_stand_once, "angarium.bench.deliver", "headers['Angarium-Type'] = 'a'"),
    (wire_names_stand_once, "streams.journal.fence", "lost = code == 10071"),
    (subjects_are_cut_where_they_are_made, "streams.producer", "tenant = message.subject.split('.')[3]"),
    (subjects_are_cut_where_they_are_made, "streams.producer", "receiver = subject[len(prefix) :]"),
    (tenants_are_cut_in_one_place, "angarium.logs", "tenant = fact.receiver.partition('.')[0]"),
    (tenants_are_cut_in_one_place, "angarium.logs", "tenants = {each.split('.')[0] for each in found}"),
    (private_names_stay_private, "tests.sim.mutants.tails", "Mutant('a', 'b', ((Host, '_needed', f),))"),
    (private_names_stay_private, "tests.sim.mutants.tails", "host._needed = 1"),
    (private_names_stay_private, "tests.sim.mutants.tails", "world.host._needed = 1"),
    (private_names_stay_private, "tests.sim.resending.mutants", "from streams.storage.purge import _end"),
    (private_names_stay_private, "tests.contract.node.test_node", "node.context._members"),
    (private_names_stay_private, "tests.contract.node.test_node", "node_of(1)._members"),
    (private_names_stay_private, "tests.edge.api.test_tail", "monkeypatch.setattr(tails, '_READ', 1)"),
    (
        private_names_stay_private,
        "tests.edge.api.test_tail",
        "patch.setattr('angarium.gate._MAX', 1)",
    ),
    (annotations_are_real, "actors.machine.state", "from __future__ import annotations"),
]


@pytest.mark.parametrize(("rule", "name", "source"), BREACHES)
def test_a_breach_is_found(rule: Callable[[Module], Iterator[str]], name: str, source: str) -> None:
    assert len(list(rule(Module(name, source)))) >= 1


def test_no_folder_has_too_many_files() -> None:
    folders = Counter(
        str(path.parent.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if path.name != "__init__.py"
    )
    assert not {folder for folder, count in folders.items() if count > FILES_MAX}


def test_no_folder_has_too_many_entries() -> None:
    """A reader chooses among few names: files and folders together."""
    paths = {
        path for package in OURS for path in (ROOT / package).rglob("*.py") if path.name != "__init__.py"
    }
    entries = {ancestor for path in paths for ancestor in (path, *path.parents)}
    folders = Counter(str(each.parent.relative_to(ROOT)) for each in entries if ROOT in each.parents)
    crowded = {folder for folder, count in folders.items() if count > ENTRIES_MAX}
    assert not crowded - WIDE_FOLDERS


def test_each_folder_with_parts_has_layers() -> None:
    folders = {
        ".".join(path.parent.parent.relative_to(ROOT).parts)
        for package in OURS
        for path in (ROOT / package).rglob("__init__.py")
        if path.parent != ROOT / package
    }
    assert folders == set(LAYERS)


def test_each_folder_of_a_package_is_a_row_of_the_tour() -> None:
    tour = (ROOT / "docs/tour.md").read_text(encoding="utf-8")
    rows = "".join(line.split(" | ")[0] for line in tour.splitlines() if line.startswith("| `"))
    folders = {
        f"`{package}/{path.parent.name}/`"
        for package in OURS
        for path in (ROOT / package).glob("*/__init__.py")
    }
    assert not {folder for folder in folders if folder not in rows}


def test_each_file_between_the_folders_of_a_package_is_in_its_row_of_the_tour() -> None:
    tour = (ROOT / "docs/tour.md").read_text(encoding="utf-8").splitlines()
    for package in OURS:
        (row,) = [line for line in tour if line.startswith(f"| files of `{package}/` | ")]
        files = {path.name for path in (ROOT / package).glob("*.py")} - {"__init__.py", "__main__.py"}
        assert set(re.findall(r"`(\w+\.py)`", row)) == files


def test_every_rule_has_its_breach() -> None:
    assert {rule for rule, _, _ in BREACHES} == set(RULES)


ALLOWED = [
    (
        bullets_name_members,
        "streams.producer",
        'class Place(Base):\n    """A place.\n\n    - `position`: where it is.\n    """\n\n'
        "class Base:\n    def __init__(self, position): self.position = position",
    ),
    (docstrings_name_what_exists, "streams.producer", 'def f():\n    """Calls `existing_stream`."""'),
    (words_are_usual, "tests.unit.worlds.unknown", "x = 'acme.nobody'"),
    (words_are_usual, "streams.producer", '"""A node takes over all shards after a crash."""'),
    (words_are_usual, "streams.producer", '"""Looks for a port, once for each look-up."""'),
    (first_lines_say_what_it_is, "tests.sim.test_sim", 'def test_a_death():\n    """Nobody follows."""'),
    (reasons_name_their_subject, "tests.sim.test_sim", 'def test_a_death():\n    """Otherwise it ends."""'),
    (titles_name_their_subject, "tests.edge.test_free_ports", "def test_a_port_without_a_listener(): ..."),
    (first_lines_say_what_it_is, "angarium.logs", '"""Items of a list."""'),
    (first_lines_are_whole, "streams.producer", '"""The rules:\n\n- one.\n"""'),
    (
        diagrams_keep_their_lines,
        "streams.producer",
        '"""Purges.\n\n    f(a) -> b\n    g(b) -> c\n\nSo.\n"""',
    ),
    (
        first_lines_say_what_it_is,
        "streams.producer",
        '"""Offers room."""\ndef f():\n    """Whatsoever."""',
    ),
    (arrows_point_down, "streams.reading.inbox", "from actors.ports import Inbox\nfrom actors import ids"),
    (arrows_point_down, "angarium.delivery.sender", "from angarium import __version__"),
    (
        arrows_point_down,
        "angarium.node.app",
        "import streams.nats.wire\nfrom angarium.delivery import sender",
    ),
    (
        layers_hold,
        "streams.journal.claim",
        "from streams.nats import wire\nfrom streams.journal import fence",
    ),
    (
        layers_hold,
        "angarium.cli.processes.node",
        "from angarium import __version__\nfrom streams.nats import wire",
    ),
    (folders_name_their_folders, "angarium.node.__init__", '"""Has `metrics` and `node.housekeeping`."""'),
    (the_machine_holds_nothing, "actors.machine.state", "class A:\n    def __init__(self): self.at = 1"),
    (the_machine_holds_nothing, "actors.memory.cursor", "class A:\n    def f(self): self.at = 1"),
    (the_core_is_pure, "actors.ports", "class Sender(Protocol):\n    async def send(self) -> None: ..."),
    (the_core_is_pure, "actors.runtime.actor", "import asyncio\nasync def f(clock):\n    return clock.now()"),
    (
        nothing_is_swallowed,
        "streams.reading.pull",
        "try:\n    f()\nexcept Exception:\n    log.exception('f')",
    ),
    (nothing_is_left_for_later, "streams.reading.pull", "x = 'TODO'"),
    (words_have_one_meaning, "angarium.node.metrics", "left = actor.pending.cursor.left_min"),
    (words_have_one_meaning, "angarium.api.routes.jobs", "def page(cursor): ..."),
    (
        numbers_say_what_they_bound,
        "streams.producer",
        "READ_TIMEOUT_S = 5.0\nVERSION = 1\n_TICK_S = 1e-6",
    ),
    (
        truths_are_named_as_questions,
        "angarium.node.node",
        "@property\ndef is_ready(self) -> bool: ...\ndef hand_over(self) -> bool: ...",
    ),
    (classes_have_names_of_their_own, "streams.reading.backlog", "class Backlog: ...\nclass _Owner: ..."),
    (subjects_are_cut_where_they_are_made, "streams.producer", "log(message.subject[:160])"),
    (tenants_are_cut_in_one_place, "angarium.logs", "tenant, _, name = receiver.partition('.')"),
    (wire_names_stand_once, "streams.producer", '"""Angarium-Type names the type."""'),
    (
        private_names_stay_private,
        "tests.sim.mutants.tails",
        "class A:\n    def f(self): self._a = b.__a__",
    ),
    (private_names_stay_private, "tests.edge.server.test_connection", "wire._client"),
    (errors_have_one_root, "angarium.delivery.answer", "class _Stop(Exception): ..."),
]


@pytest.mark.parametrize(("rule", "name", "source"), ALLOWED)
def test_correct_code_breaks_no_rule(rule: Callable[[Module], Iterator[str]], name: str, source: str) -> None:
    assert list(rule(Module(name, source))) == []
