"""Traces: spans are made from confirmed facts, and exported by OTLP. Read `tracer.py` first.

`trace_ids`, `spans`, `known_traces` and `tracer` do no input or output. `open_tracing` reads the variables of
OpenTelemetry (`otel_variables`) and starts `span_exporter`, which sends spans from a thread;
`collector_session` bounds what a collector may answer. `metrics/` has the metrics of all processes. Only
`span_exporter` and two files of `metrics/` import OpenTelemetry, and only if an endpoint is set; `otel_log`
writes its log lines as ours.
"""
