"""The commands that configure receivers: `receiver` with its subcommands, `apply` and `export`.

Read `receiver` first. `draft` turns flags and files into a configuration.
"""
