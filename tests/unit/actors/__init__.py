"""Ids and allowed values, and what is derived from states."""
