"""The ledger in a database of PostgreSQL: any number of writers and readers. Read `store` first."""
