"""The ledger: the journal followed into SQL, so that what happened can be asked.

Read `batch` first (what is kept of a fact), then `writer` (how each fact is stored exactly once, despite
crashes) and `schema`. `questions` answers queries; it needs neither a node nor NATS.
"""
