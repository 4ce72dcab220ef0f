"""The ledger: the journal followed into SQL, so that what happened can be asked.

Read `batch` first (what is kept of a fact), then `writer` (how each fact gets there once, over every crash)
and `schema`. `questions` answers what is asked; it knows no node and no NATS.
"""
