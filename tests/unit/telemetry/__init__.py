"""Tests of `angarium/telemetry/`."""
