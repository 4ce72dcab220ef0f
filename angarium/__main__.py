"""Entry point of the console script and of `python -m angarium`.

Commands take a moment to load. Meanwhile Ctrl-C ends the process without a traceback, like any other program;
`angarium.terminal.run` handles it while a command works.
"""

import signal

signal.signal(signal.SIGINT, signal.SIG_DFL)

from angarium.cli.main import main  # noqa: E402

if __name__ == "__main__":
    main()
