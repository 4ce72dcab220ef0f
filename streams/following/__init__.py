"""Following the whole journal from outside, for records: nothing here belongs to a shard's owner.

Read `journal_reader` first.
"""
