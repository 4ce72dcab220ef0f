"""A free port, for programs that have to be given one."""

from streams.server.free_ports import free_ports


def free_port() -> int:
    """A free port of 127.0.0.1 that the system gives to no other process meanwhile."""
    [port] = free_ports(1)
    return port
