"""The commands as their users run them, from the installed wheel to Ctrl-C."""
