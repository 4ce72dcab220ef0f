"""The watchdog process between Angarium and its child, so that the child never outlives Angarium.

Such a child is its nats-server, or the node of a demo or a bench. The watchdog is a script of its own,
`python -I -S watchdog.py GRACE_S COMMAND…`. It starts the command as its child and reads one order from a
pipe whose other end only Angarium holds:

- end of file: stop the child, SIGTERM first, SIGKILL after GRACE_S;
- the byte `KILL`: SIGKILL at once, as a crash would.

It uses a pipe, because the kernel closes it when its holder dies in any way, even by SIGKILL, on every POSIX
system: nothing is polled, no pid that could be reused is remembered, and no Linux-only feature such as
PR_SET_PDEATHSIG is needed. It is a process, because nats-server does not watch its own standard input. Only a
SIGKILL of this process leaves a child behind; the store of a server then stays locked, and the next start
says so.
"""

import os
import signal
import subprocess
import sys
import threading

KILL = b"K"


def obey(child: subprocess.Popen[bytes], grace_s: float) -> None:
    """Wait for the order, and carry it out."""
    if os.read(sys.stdin.fileno(), 1) == KILL:
        child.kill()
        return
    child.terminate()
    try:
        child.wait(grace_s)
    except subprocess.TimeoutExpired:
        child.kill()


def watch(grace_s: float, command: list[str]) -> int:
    """Run the command until it ends by itself or by order; returns its status as a shell would.

    Other users of the machine cannot read the files that it writes.
    """
    os.umask(0o077)
    children: list[subprocess.Popen[bytes]] = []
    signals: list[int] = []

    def on_signal(number: int, _: object) -> None:
        signals.append(number)
        for each in children:
            each.terminate()

    # This comes before the start of the child: a SIGTERM in between would leave it behind.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, on_signal)
    # close_fds=False passes on the descriptor that Angarium passed to us: the lock of the store.
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, close_fds=False)
    children.append(child)
    if signals:
        child.terminate()
    threading.Thread(target=obey, args=(child, grace_s), daemon=True).start()
    status = child.wait()
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(watch(float(sys.argv[1]), sys.argv[2:]))
