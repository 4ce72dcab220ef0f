"""Entry point of the console script and of `python -m angarium`.

Commands take a moment to load. Ctrl-C then ends the process as it does any other, without a traceback; what
becomes of it while a command works is for `angarium.terminal.run` to say.
"""

import signal

signal.signal(signal.SIGINT, signal.SIG_DFL)

from angarium.cli.main import main  # noqa: E402

if __name__ == "__main__":
    main()
