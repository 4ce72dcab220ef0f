"""From a typed command to an operation and back: flags, names, Tab completion, and how a command fails.

Read `options` first, then `perform`. All other folders of commands use these four.
"""
