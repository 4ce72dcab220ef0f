"""Traces: spans are made from confirmed facts, and exported by OTLP. Read `tracer.py` first.

`trace_ids`, `spans` and `tracer` know no outside world. Only `export` knows the OpenTelemetry SDK, and only
`opening` imports it, if an endpoint is set. `metrics/` has the metrics of all processes.
"""
