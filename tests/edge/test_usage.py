"""Wrong usage: status 2 and one line with the remedy, before any connection."""

import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import msgspec
import pytest

from actors.errors import AngariumError, BadInput, Unavailable
from angarium import __version__, package_check
from angarium.cli import main
from angarium.settings import VARIABLE_PREFIX, Settings, SettingsError, flag_name
from streams.nats.errors import ApiError, ConnectError, Disconnected, NotPermitted, ServerError, SetupError

LOADED = [("click", "--help"), ("asyncio", "setup"), ("uvloop", "node")]
"""Modules that take a while to load, and a command that loads each."""

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings of this machine, and no server."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ANGARIUM_NATS", "nats://127.0.0.1:1")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["frobnicate"], "angarium: no such command 'frobnicate'"),
        (["publish"], "angarium publish: missing argument 'TENANT[.NAME]'; see angarium publish --help"),
        (["publish", "acme", "{}", "--type", "a b"], "event type 'a b': 1 to 16 tokens"),
        (["publish", "1st", "{}"], "tenant '1st': a letter, then up to 63 of"),
        (["publish", "9.x", "{}"], "tenant '9': a letter, then up to 63 of"),
        (["publish", "acme._x", "{}"], "receiver name '_x'"),
        (["publish", "acme.x", "{}", "--type", "a..b"], "event type 'a..b': 1 to 16 tokens"),
        (["publish", "acme.x", "{}", "--type", "angarium.ping"], "types that begin with angarium. are"),
        (["publish", "acme.x", "{}", "--id", "a b"], "--id: 1 to 128 of A-Z a-z 0-9 _ - :"),
        (["publish", "acme.x", "{}", "--id", "a", "--lines"], "with --lines each event gets a new id"),
        (["publish", "acme.x", "{}", "--data", "{}"], "several bodies were given"),
        (["publish", "acme.x", "--file", "none.json"], "'none.json'"),
        (["publish", "acme.x", "{}", "--log-format", "xml"], "log_format (--log-format): must be"),
        (["publish", "acme.x", "{}", "--config", "none.toml"], "config (none.toml): no such file"),
        (["publish", "acme.x", "{}", "--content-type", "a\r\nb: c"], "--content-type: printable ASCII"),
        (["publish", "acme.x", "{}", "--nats", "http://x"], "nats (--nats): this is not a list of server"),
        (["dev", "--nats", "nats://127.0.0.1:1", "--port", "4223"], "--port is for the embedded server"),
        (["dead", "show", "9" * 30], "is not the number of a letter"),
        (
            ["receiver", "put", "acme.x", "--url"],
            "'--url' requires an argument; see angarium receiver put --help",
        ),
        (["--nats", "nats://x", "doctor"], "option '--nats' before the command: options go after it; see"),
        (["receiver", "--nats=x", "list"], "option '--nats' before the command: options go after it; see"),
        (["--versio"], "angarium: no such option '--versio'. Did you mean '--version'? See angarium --help"),
        (["node", "--nats"], "angarium node: option '--nats' requires an argument; see angarium node --help"),
        (["repair"], "missing option '--accept-loss'; see angarium repair --help"),
        (["attempts", "acme.x", "--since", "1h", "--until", "2h"], "--until is before --since"),
        (["history", "acme.x", "--since", "2999-01-01T00:00:00Z"], "--since is in the future"),
        (["inspect", "acme.x", "--at", "2999-01-01T00:00:00Z"], "--at is in the future"),
        (["inspect", "acme.x", "--at", ""], "--at: '' is not a time; write an age"),
        (["fleet", "drain", ""], "the name of the node is empty; angarium fleet lists the nodes"),
        (["event", ""], "the id of the event is empty"),
        (["audit", "acme.x", "--plot", "a.jpg"], "--plot a.jpg: write a name that ends with .svg or .png"),
        (["ledger", "--to", "sqlite:///x.db", "--keep", "0s"], "--keep 0s: must be at least a minute"),
        (["ledger", "--to", "foo"], "angarium ledger: 'foo' is not a ledger: write sqlite:///"),
        (["attempts", "acme.x", "--ledger", "foo"], "angarium: 'foo' is not a ledger: write sqlite:///"),
        (["event", "e1", "--ledger", "foo"], "angarium: 'foo' is not a ledger: write sqlite:///"),
        (["top", "--within", "1h", "--ledger", "foo"], "angarium: 'foo' is not a ledger: write sqlite:///"),
        (["ledger", "--to", "postgresql://ann:hush-hush@db/events"], "contains a password"),
        (["repair", "--accept-loss", "64"], "'64' is not a shard; shards are 0 to 63"),
        (["repair", "--accept-loss", "1,x"], "'x' is not a shard; shards are 0 to 63"),
        (["repair", "--accept-loss", "all,1"], "give shards, or all"),
        (["dead", "drop", "9" * 30, "--yes"], f"tenant '{'9' * 30}': a letter"),
        (["receiver", "show", "acme.x"], "no such command 'show'. Did you mean 'get'?"),
        (["receiver", "put", "acme"], "receiver 'acme': write it as <tenant>.<name>"),
        (["receiver", "put", "acme.x", "{}", "--url", "https://x"], "as JSON or with flags, not both"),
        (["receiver", "put", "acme.x", "[1]"], "configuration: must be a JSON object"),
        (["receiver", "put", "acme.x", "-"], "to read the JSON from stdin, give --file -"),
        (["receiver", "put", "acme.x", "{"], "configuration: not valid JSON"),
        (["receiver", "put", "acme.x", "--url", "https://x", "--burst", "3"], "--burst needs --rate"),
        (["receiver", "set", "acme.x", "--rate", "1/s,9/min", "--burst", "3"], "their bursts as JSON"),
        (["receiver", "put", "acme.x", "--url", "https://x", "--rate", "3"], "--rate: '3' is not a rate"),
        (["receiver", "put", "acme.x", "--url", "https://x", "--header", "a"], "write it as NAME=VALUE"),
        (["receiver", "put", "acme.x", "--event", "a", "--direct-only"], "contradict each other"),
        (["receiver", "put", "acme.x", "--unsigned", "--add-secret"], "give them once"),
        (["receiver", "put", "acme.x", "--secret", "whsec_x", "--unsigned"], "give them once"),
        (
            ["receiver", "put", "--add-secret", "hush-hush"],
            "for a new secret, write it after the receiver's name",
        ),
        (["receiver", "put", "acme.x", '{"secrets": []}', "--unsigned"], "give them once"),
        (["receiver", "put", "acme.x", "--order", "fifo"], "invalid value for '--order'"),
        (["receiver", "list", "a.b"], "give a tenant, such as a; for one receiver: angarium inspect a.b"),
        (["receiver", "ping", "acme"], "write it as <tenant>.<name>"),
        (["inspect", "acme"], "write it as <tenant>.<name>"),
        (["listen", "--port", "x"], "angarium listen: invalid value for '--port'"),
        (["listen", "--secret", "hush-hush"], "--secret: must begin with whsec_"),
        (["node", "--ttl-s", "1"], "ttl_s (--ttl-s): must be a number from 2 to 60, not '1'"),
        (["token", "create", "acme"], "missing option '--scope'"),
        (["token", "create", "acme", "--scope", "all"], "invalid value for '--scope'"),
        (["token", "create", "acme", "--scope", "read", "--expires", "soon"], "--expires: 'soon' is not"),
        (["api", "--port", "x"], "angarium api: invalid value for '--port'"),
        (["api", "--api", "x"], "'x' is not an address; write it as 127.0.0.1"),
        (["setup", "--shards", "many"], "shards (--shards): must be a whole number"),
    ],
)
def test_wrong_usage_is_answered_in_one_line(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(arguments) == main.EXIT_WRONG_USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert sentence in err
    assert err.count("\n") == 1
    assert "hush-hush" not in err


@pytest.mark.parametrize(
    "arguments",
    [
        ["publish", "acme.x", "{}"],
        ["receiver", "put", "acme.x", "--url", "https://example.com"],
        ["receiver", "list"],
        ["receiver", "rm", "acme.x"],
        ["inspect", "acme.x"],
        ["setup"],
        ["node"],
        ["dev", "--nats", "nats://127.0.0.1:1"],
    ],
)
def test_no_server_is_one_line_too(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(arguments) == main.EXIT_FAILED
    out, err = capsys.readouterr()
    assert out == ""
    assert "cannot connect to NATS at nats://127.0.0.1:1" in err
    assert err.count("\n") == 1


def test_a_variable_that_is_not_a_setting_is_noted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ANGARIUM_SHARD", "hush")
    note = "the variable ANGARIUM_SHARD is not a setting; did you mean ANGARIUM_SHARDS?"
    assert main.run(["receiver", "list"]) == main.EXIT_FAILED
    assert capsys.readouterr().err.splitlines()[0] == f"note: {note}"
    assert main.run(["doctor"]) == main.EXIT_FAILED
    out, err = capsys.readouterr()
    assert f"problem  settings      {note}" in out
    assert err.splitlines()[-1] == "angarium: 2 problems found"
    monkeypatch.setenv("ANGARIUM_LOG_FORMAT", "json")
    assert main.run(["node"]) == main.EXIT_FAILED
    logged = msgspec.json.decode(capsys.readouterr().err.splitlines()[0])
    assert (logged["event"], logged["variable"]) == ("settings.unknown", "ANGARIUM_SHARD")


@pytest.mark.parametrize("command", ["node", "setup", "publish"])
def test_help_names_the_variable_of_each_setting(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([command, "--help"]) == 0
    shown = "".join(capsys.readouterr().out.split())
    flags = [each for each in Settings.__struct_fields__ if flag_name(each) in shown]
    assert "nats" in flags
    assert [each for each in [*flags, "config"] if f"[ANGARIUM_{each.upper()}" not in shown] == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a disk that is full is a file of Linux")
@pytest.mark.parametrize("command", ["node", "event", "api", "ledger"])
def test_help_breaks_no_variable_over_two_lines(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main.run([command, "--help"]) == 0
    shown = capsys.readouterr().out
    named = "|".join(f"{VARIABLE_PREFIX}{each.upper()}" for each in Settings.__struct_fields__)
    whole = len(re.findall(rf"\[({named})\b", shown))
    assert whole == len(re.findall(rf"\[({named})\b", "".join(shown.split()))) > 1


def test_an_output_that_cannot_be_written_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "angarium", "--version"],
            env={"PYTHONPATH": str(ROOT)},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == main.EXIT_FAILED
    assert done.stderr.startswith("angarium: cannot write the output (No space left on device); make room")
    assert done.stderr.count("\n") == 1


def test_a_closed_output_is_not_a_defect() -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", '"$0" -m angarium --version >&-', sys.executable],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_an_unexpected_error_is_one_line_without_quotations(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = Mock(side_effect=ValueError("no port in\nnats://me:hush-hush@a:x"))
    monkeypatch.setattr("angarium.package_check.foreign_packages", broken)
    assert main.run(["doctor"]) == main.EXIT_FAILED
    err = capsys.readouterr().err
    assert err.startswith("angarium: internal error (ValueError: no port in nats://…@a:x); --log-level debug")
    assert err.count("\n") == 1


def test_doctor_names_a_missing_server(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["doctor"]) == main.EXIT_FAILED
    out, err = capsys.readouterr()
    assert "problem" in out
    assert "cannot connect to NATS" in out
    assert "1 problem found" in err


@pytest.mark.parametrize("arguments", [["--help"], ["receiver", "put", "-h"], ["listen", "--help"]])
def test_help_is_not_an_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(arguments) == 0
    assert "Usage: angarium" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["receiver"]])
def test_a_group_alone_shows_its_help_and_fails(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(arguments) == main.EXIT_WRONG_USAGE
    assert "Commands:" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", [["inspect"], ["receiver", "get"], ["dead", "list"], ["publish"], ["node"]]
)
def test_every_command_that_connects_may_have_inboxes_of_its_own(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run([*command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert ("--nats " in shown, "--inbox-prefix " in shown) == (True, True)


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--version"]) == 0
    assert capsys.readouterr().out == f"angarium {__version__}\n"


def test_help_imports_nothing_slow() -> None:
    program = (
        "import sys, angarium.cli.main\n"
        "status = angarium.cli.main.run(['--help'])\n"
        "slow = {'asyncio', 'httptools', 'httpx', 'nats', 'rich', 'streams', 'uvloop'} & sys.modules.keys()\n"
        "sys.exit(f'imported {slow}' if slow else status)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_a_command_imports_no_other() -> None:
    program = (
        "import sys, angarium.cli.main\n"
        "angarium.cli.main.run(['publish', '--help'])\n"
        "print(*sorted(set(angarium.cli.main.MODULES.values()) & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == "angarium.cli.events.publish"


def test_only_the_http_api_pays_for_its_import() -> None:
    """Litestar alone takes a quarter of a second, and each publish from a script would wait for it."""
    commands = [
        ["publish", "acme", "{}", "--type", "a"], ["receiver", "list"], ["dead", "list"], ["token", "list"],
        ["doctor"], ["node", "--node", "n1"],
    ]  # fmt: skip
    program = (
        "import json, sys, angarium.cli.main\n"
        "for command in json.loads(sys.argv[1]):\n"
        "    status = angarium.cli.main.run([*command, '--nats', 'nats://127.0.0.1:1'])\n"
        "    slow = {'litestar', 'uvicorn', 'angarium.api'} & sys.modules.keys()\n"
        "    if slow or status != 1:\n"
        "        sys.exit(f'{command} ended with {status} and imported {slow}')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, msgspec.json.encode(commands)],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, (done.stdout + done.stderr).count("nats://127.0.0.1:1:")) == (
        0,
        len(commands),
    ), done


@pytest.mark.parametrize(("package", "command"), LOADED)
def test_ctrl_c_while_it_loads_is_quiet(tmp_path: Path, package: str, command: str) -> None:
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").write_text("print('loading', flush=True); input()")
    process = subprocess.Popen(
        [sys.executable, "-m", "angarium", command],
        env={"PYTHONPATH": f"{tmp_path}:{ROOT}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "loading\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert (process.returncode, err) == (-signal.SIGINT, "")


@pytest.mark.parametrize("arguments", [["setup"], ["node"], ["dev"], ["dead", "redrive", "--all"]])
def test_ctrl_c_while_nats_does_not_answer_is_quiet(arguments: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        process = subprocess.Popen(
            [sys.executable, "-m", "angarium", *arguments, "--nats", f"127.0.0.1:{mute.getsockname()[1]}"],
            env={"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        connection, _ = mute.accept()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
        connection.close()
    assert (process.returncode, out, err.strip()) == (main.EXIT_INTERRUPTED, b"", b"")


def test_packages_of_others_are_refused_before_they_are_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "strange" / "actors").mkdir(parents=True)
    (tmp_path / "strange" / "actors" / "__init__.py").write_text("raise SystemExit('imported')")
    program = "import sys; from angarium.cli.main import run; sys.exit(run(['--help']))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": f"{tmp_path / 'strange'}:{ROOT}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == main.EXIT_FAILED
    assert "is not Angarium's; install angarium in its own environment (pipx or a venv)" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_package_of_others_in_the_working_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "streams.py").write_text("raise SystemExit('imported')")
    done = subprocess.run(
        [sys.executable, "-m", "angarium", "doctor"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == main.EXIT_FAILED
    assert done.stderr.startswith(f"angarium: the package streams in {tmp_path.resolve()} is not Angarium's;")
    assert done.stderr.count("\n") == 1


def test_a_package_of_others_that_was_installed_over_ours_is_refused(tmp_path: Path) -> None:
    """Both packages are in one directory then, and Python finds the files of either."""
    for package in ("actors", "streams", "angarium"):
        shutil.copytree(ROOT / package, tmp_path / package)
    (tmp_path / "actors" / "__init__.py").write_text("raise SystemExit('imported')")
    done = subprocess.run(
        [sys.executable, "-c", "import sys; from angarium.cli.main import run; sys.exit(run(['doctor']))"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == main.EXIT_FAILED
    assert done.stderr == (
        f"angarium: another package is installed over actors in {tmp_path.resolve() / 'actors'}; "
        "install angarium in its own environment (pipx or a venv)\n"
    )


def test_a_package_that_is_gone_is_missed(tmp_path: Path) -> None:
    """Uninstalling the other package removes our files."""
    for package in ("streams", "angarium"):
        shutil.copytree(ROOT / package, tmp_path / package)
    done = subprocess.run(
        [
            sys.executable,
            "-S",
            "-c",
            "from angarium import package_check; print(package_check.foreign_packages())",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "['the package actors is missing; install angarium again']\n", done.stderr


def test_the_remedy_for_packages_of_others_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_check, "_HOME", Path("/elsewhere"))
    found = package_check.foreign_packages()
    assert len(found) == 2
    assert "; ".join(found).count("install angarium in its own environment") == 1
    assert found[-1].endswith("(pipx or a venv)")


def test_our_own_packages_are_ours() -> None:
    assert package_check.foreign_packages() == []


def test_our_children_find_our_packages_in_a_directory_with_others_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "actors").mkdir()
    (tmp_path / "actors" / "__init__.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    command = [*package_check.python(), "-m", "angarium", "--version"]
    environment = {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.stdout == f"angarium {__version__}\n", done.stderr


@pytest.fixture
def _broken_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr("angarium.cli.live.inspection.perform", broken)


@pytest.mark.usefixtures("_broken_command")
def test_an_unforeseen_error_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["inspect", "acme.x"]) == main.EXIT_FAILED
    assert capsys.readouterr().err == (
        "angarium: internal error (RuntimeError: boom); --log-level debug shows where; please report it\n"
    )


def _below(error: type[AngariumError]) -> Iterator[type[AngariumError]]:
    yield error
    for each in error.__subclasses__():
        yield from _below(each)


def test_every_error_of_ours_is_shown_by_its_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command line lists only the errors of wrong usage, and those that doctor explains."""

    def fails(*_: object) -> None:
        raise error.__new__(error, "it broke")

    monkeypatch.setattr("angarium.cli.live.inspection.perform", fails)
    told = {}
    for error in _below(AngariumError):
        status = main.run(["inspect", "acme.x"])
        told[error] = status, capsys.readouterr().err.removeprefix("angarium: it broke")
    assert {text for _, text in told.values()} == {"\n", "; run angarium doctor to see what is missing\n"}
    usage = {error for error, (status, _) in told.items() if status == main.EXIT_WRONG_USAGE}
    assert usage == set(_below(BadInput))
    assert SettingsError in usage
    assert {error: told[error] for error in (Disconnected, ConnectError, SetupError, ServerError)} == (
        dict.fromkeys((Disconnected, ConnectError, SetupError, ServerError), (main.EXIT_FAILED, "\n"))
    )
    assert "doctor" in told[ApiError][1]
    assert "doctor" in told[Unavailable][1]
    assert "doctor" not in told[NotPermitted][1]


def test_an_argument_that_is_not_text_is_wrong_usage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("angarium.cli.live.inspection.perform", lambda *_: "\udcff".encode())
    assert main.run(["inspect", "acme.x"]) == main.EXIT_WRONG_USAGE
    assert capsys.readouterr().err == "angarium: an argument is not text; write it in UTF-8\n"


@pytest.mark.usefixtures("_broken_command")
def test_a_defect_shows_its_traceback_at_the_level_debug(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["inspect", "acme.x", "--log-level", "debug", "--log-format", "json"]) == main.EXIT_FAILED
    logged, told = capsys.readouterr().err.splitlines()
    assert "in broken" in msgspec.json.decode(logged)["traceback"]
    assert told.startswith("angarium: internal error")
