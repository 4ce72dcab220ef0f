"""Tests of `streams.sealing`: single values, whole configurations, and the key file."""
