"""The commands and flags that a text for clients of the API must not contain."""

import re

COMMAND_LINE = re.compile(r"(?<![\w./])(angarium [a-z]|--[a-z])")
