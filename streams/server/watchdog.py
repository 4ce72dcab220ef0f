"""The watchdog process between Angarium and its child, so that the child never outlives Angarium: its
nats-server, and the node of a demo or a bench.

It is a script of its own, `python -I -S watchdog.py GRACE_S COMMAND…`. It starts the command as its child and
reads one order from a pipe whose other end only Angarium holds:

- end of file: stop the child, SIGTERM first, SIGKILL after GRACE_S;
- the byte `KILL`: SIGKILL at once, as a crash would.

A pipe, because the kernel closes it however its holder dies, SIGKILL included, on every POSIX system: nothing
is polled, no pid is remembered that could be reused, and nothing is needed that only Linux has, such as
PR_SET_PDEATHSIG. A process, because nats-server does not watch its own standard input. SIGKILL of this very
process is the one thing that leaves a child behind; the store of a server then stays locked, and the next
start says so.
"""

import os
import signal
import subprocess
import sys
import threading

KILL = b"K"


def obey(child: subprocess.Popen[bytes], grace_s: float) -> None:
    """Waits for the order and carries it out."""
    if os.read(sys.stdin.fileno(), 1) == KILL:
        child.kill()
        return
    child.terminate()
    try:
        child.wait(grace_s)
    except subprocess.TimeoutExpired:
        child.kill()


def watch(grace_s: float, command: list[str]) -> int:
    """Runs the command until it ends by itself or by order; returns its status in the shell's manner.

    Other users of the machine cannot read what it writes.
    """
    os.umask(0o077)
    children: list[subprocess.Popen[bytes]] = []
    told: list[int] = []

    def tell(number: int, _: object) -> None:
        told.append(number)
        for each in children:
            each.terminate()

    # Before the child is there: told to go between its start and this, we would leave it behind.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, tell)
    # close_fds=False hands on what Angarium handed to us: the lock of the store.
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, close_fds=False)
    children.append(child)
    if told:
        child.terminate()
    threading.Thread(target=obey, args=(child, grace_s), daemon=True).start()
    status = child.wait()
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(watch(float(sys.argv[1]), sys.argv[2:]))
