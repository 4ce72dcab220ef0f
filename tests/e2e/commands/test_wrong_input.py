"""Wrong input: names that do not exist, empty input, an editor that does not start."""

import signal

import pytest

from tests.support.processes.commands import Terminal

URL = "https://example.com/hook"


@pytest.fixture(scope="module")
def terminal(nats_url: str, tmp_path_factory: pytest.TempPathFactory) -> Terminal:
    """One installation for all tests, with the tenants acme and shop."""
    terminal = Terminal(tmp_path_factory.mktemp("slips"), nats_url)
    terminal.done("setup")
    for name in ("acme.billing", "shop.mail"):
        terminal.done("receiver", "put", name, "--url", URL)
    return terminal


@pytest.mark.parametrize("command", [("top", "--once"), ("receiver", "list"), ("export",)], ids=str)
def test_an_unknown_tenant_is_noted(terminal: Terminal, command: tuple[str, ...]) -> None:
    done = terminal.run(*command, "acmee")
    assert done.returncode == 0
    assert "note: tenant acmee has no receivers; angarium receiver list shows all" in done.stderr
    assert "has no receivers" not in terminal.run(*command, "acme").stderr


def test_a_phase_without_receivers_is_not_an_unknown_tenant(terminal: Terminal) -> None:
    assert "no receivers" not in terminal.run("receiver", "list", "acme", "--phase", "offline").stderr


@pytest.mark.parametrize(
    ("of", "note"),
    [("acmee", "tenant acmee has no receivers"), ("acme.bill", "there is no receiver acme.bill")],
)
def test_tail_notes_what_does_not_exist(terminal: Terminal, of: str, note: str) -> None:
    with terminal.start("tail", of) as running:
        assert running.stderr.readline().startswith(f"note: {note};")
        running.send_signal(signal.SIGINT)


def test_an_empty_input_is_published_only_on_purpose(terminal: Terminal) -> None:
    error = terminal.failed("publish", "acme.billing", status=2)
    assert "the input is empty; to publish an event with an empty body, say --data ''" in error
    assert terminal.done("publish", "acme.billing", "--data", "").startswith("ANGARIUM_DELIVERIES ")


def test_an_input_without_lines_is_noted(terminal: Terminal) -> None:
    done = terminal.run("publish", "acme", "--lines")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "note: the input has no lines, so nothing was published\n"


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        (["inspct"], "angarium: no such command 'inspct'. Did you mean 'inspect'? See angarium --help\n"),
        (
            ["receiver", "pu"],
            "angarium receiver: no such command 'pu'. Did you mean 'put'? See angarium receiver --help\n",
        ),
        (
            ["receiver", "lst"],
            "angarium receiver: no such command 'lst'. Did you mean one of: 'list', 'set'? "
            "See angarium receiver --help\n",
        ),
        (["xyzzy"], "angarium: no such command 'xyzzy'; see angarium --help\n"),
    ],
)
def test_a_misspelled_command_is_reported_with_the_nearest_one(
    terminal: Terminal, typed: list[str], line: str
) -> None:
    assert terminal.failed(*typed, status=2) == line


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("receiver list acme.bill", "such as acme; for one receiver: angarium inspect acme.bill"),
        ("replay acme.billing --since 1h --resume", "--resume goes without --since"),
        ("replay acme.billing --abandon --dry-run", "--abandon goes without --dry-run"),
        ("replay acme.billing --abandon --resume", "--resume and --abandon contradict each other"),
        ("dead show x", "'x' is not the number of a letter"),
        ("dead show 0", "'0' is not the number of a letter"),
        ("setup --max-bytes 1MB", "(bytes, such as 1048576, or 1MiB; 1MB is 1000000)"),
    ],
)  # fmt: skip
def test_wrong_usage_says_what_is_right(terminal: Terminal, typed: str, says: str) -> None:
    assert says in terminal.failed(*typed.split(), status=2)


def test_a_member_that_is_not_set_is_noted(terminal: Terminal) -> None:
    unset = ("receiver", "set", "acme.billing", "--unset")
    assert terminal.run(*unset, "headers.nope").stderr == "note: headers.nope is not set\n"
    terminal.done("receiver", "set", "acme.billing", "--batch-linger-s", "60")
    unset_part = terminal.run(*unset, "batch.linger_s")
    assert "is not set" not in unset_part.stderr
    assert "linger_s" in unset_part.stdout
    terminal.done("receiver", "set", "acme.billing", "--header", "X-Team=a")
    assert terminal.run(*unset, "headers.x-team").stderr == ""


def test_an_editor_that_does_not_start_changes_nothing_and_fails(terminal: Terminal) -> None:
    terminal.environment["EDITOR"] = "/nonexistent"
    try:
        error = terminal.failed("receiver", "edit", "acme.billing")
    finally:
        del terminal.environment["EDITOR"]
    assert "acme.billing was not changed: /nonexistent" in error
    assert "set VISUAL or EDITOR to your editor" in error


def test_erase_asks_which_of_several_tenants_and_whether_it_may(terminal: Terminal) -> None:
    erase = ("erase", "--event", "order-7")
    assert "there are several tenants: choose one with --tenant" in terminal.failed(*erase, "--yes", status=2)
    error = terminal.failed(*erase, "--tenant", "acme", status=2)
    assert "this erases order-7 of acme for good: give --yes to confirm" in error
    # Without a node nothing is erased; it was requested.
    error = terminal.failed(*erase, "--tenant", "acme", "--yes", "--wait", "0s")
    assert "no node has begun" in error


def test_a_token_shows_who_made_it(terminal: Terminal) -> None:
    made = terminal.json("token", "create", "acme", "--scope", "read")
    (listed,) = [each for each in terminal.json("token", "list") if each["id"] == made["id"]]
    assert "@" in listed["created_by"]
    headings, row, *_ = (line.split("\t") for line in terminal.done("token", "list").splitlines())
    assert row[headings.index("by")] == listed["created_by"]


def test_a_node_does_not_start_with_a_profile_whose_file_it_cannot_use(terminal: Terminal) -> None:
    profiles = terminal.directory / "profiles.toml"
    profiles.write_text("[tls.partner]\ncertificate = 'none.pem'\n")
    node = terminal.run("node", "--config", str(profiles))
    assert node.returncode == 2
    assert "tls.partner: certificate: No such file or directory; correct the setting" in node.stderr
    put = terminal.run(
        "receiver", "put", "acme.partner", "--url", URL, "--tls", "partner", "--config", str(profiles)
    )
    assert (put.returncode, "note:" in put.stderr) == (0, False)


def test_a_profile_that_the_settings_do_not_have_is_noted(terminal: Terminal) -> None:
    put = terminal.run("receiver", "put", "acme.eu", "--url", URL, "--proxy", "eu")
    assert put.returncode == 0
    assert (
        "note: if nodes have the settings of this process, they send nothing: proxy: nodes have no profile eu"
        in (put.stderr)
    )
    wrong = terminal.run("receiver", "set", "acme.eu", "--proxy", "http://u:s3cret@proxy:1")
    assert wrong.returncode == 2
    assert "proxy: must be the name of a profile" in wrong.stderr
