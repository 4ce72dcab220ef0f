"""Metrics: what each one is, as a table, and the forms in which it is told. Read `table.py` first.

`families` makes them for Prometheus, `reference_page` for `docs/metrics.md`. The processes that have metrics
count.
"""
