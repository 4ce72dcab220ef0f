"""The ledger: the journal copied into SQL tables, to query what happened.

Read `batch` first (the rows of a fact), then `writer` (how each fact is stored exactly once, despite
crashes) and `schema`. `queries` reads it, with texts of `query_texts`, and needs neither a node nor NATS.
`sqlite` and `postgres` are the databases that can hold it.
"""
