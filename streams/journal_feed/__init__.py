"""Follows the whole journal from outside, to keep records: nothing here belongs to a shard's owner.

Read `journal_reader` first.
"""
