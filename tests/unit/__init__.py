"""Tests without a server, in folders named like those that they test."""
