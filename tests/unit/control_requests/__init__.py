"""Answers to control requests."""
