"""Worlds in virtual time that several tests share: a shard, its receivers, rates and unknown receivers."""
