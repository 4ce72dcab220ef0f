"""Random journals, with crashes, gaps, erasures and pruning, compared with a plain fold of the same facts.

`history_generator` writes the journal and knows the truth, `expected` says what a ledger must have of it, and
`fault_injection` does to writers and journal what an installation may do to them.
"""
