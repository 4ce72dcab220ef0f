"""Tests of transforms as facts: which event is shaped by which."""
