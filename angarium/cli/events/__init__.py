"""The commands that send events and take them back: `publish`, `replay`, `erase`. Read `publish` first."""
