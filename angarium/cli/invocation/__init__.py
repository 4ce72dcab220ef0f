"""From a typed command to an operation and back.

`options` makes flags of settings, `names` takes names, `completion` completes them, `perform` runs an
operation, and `remedies` says which command helps. All other folders of commands use these five. Read
`options` first, then `perform`.
"""
