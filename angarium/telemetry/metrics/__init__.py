"""Metrics: a table of what each one is, and the formats in which they are exported. Read `table.py` first.

`families` makes them for Prometheus, `data_points` for OTLP, `reference_page` for `docs/metrics.md`. The
counting itself is done by the processes. Only `data_points` and `metrics_exporter` know the OpenTelemetry
SDK, and `open_export` imports them only if an endpoint is set.
"""
