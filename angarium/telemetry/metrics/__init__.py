"""Metrics: what each one is, as a table, and the forms in which it is told. Read `table.py` first.

`families` makes them for Prometheus, `data_points` for OTLP, `reference_page` for `docs/metrics.md`. The
processes that have metrics count. Only `data_points` and `otlp_exporter` know the OpenTelemetry SDK, and
`exporting` imports them only if an endpoint is set.
"""
