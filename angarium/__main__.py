"""Where the console script and `python -m angarium` begin.

Commands take a moment to load. Ctrl-C then ends the process as it does any other, without a traceback; what
becomes of it while a command works is for `angarium.terminal.run` to say.
"""

import signal

signal.signal(signal.SIGINT, signal.SIG_DFL)

from angarium.cli.main import main  # noqa: E402

if __name__ == "__main__":
    main()
