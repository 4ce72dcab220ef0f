"""The commands that send and erase events: `publish`, `replay`, `job`, `erase`. Read `publish` first."""
