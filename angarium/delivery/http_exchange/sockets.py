"""The kernel's view of a connection, beyond what the event loop has read and written."""

import fcntl
import sys
import termios

_NONE = bytes(4)


def has_unread(fd: int) -> bool:
    """True if bytes have come in that are not read yet. Raises OSError if the socket is gone.

    Over TLS these may be records without any content for us, such as session tickets.
    """
    return fcntl.ioctl(fd, termios.FIONREAD, _NONE) != _NONE


def has_untaken(fd: int) -> bool:
    """True if the other machine has not acknowledged all bytes yet. Raises OSError if the socket is gone."""
    # Other systems have other calls; there the transport's own buffer must be enough.
    return sys.platform == "linux" and fcntl.ioctl(fd, termios.TIOCOUTQ, _NONE) != _NONE
