"""The ledger in a file of SQLite: one writer, any number of readers. Read `store` first."""
