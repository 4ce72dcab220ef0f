"""Libraries of other projects: they verify, read and answer what a node sends, by rules of their own."""
