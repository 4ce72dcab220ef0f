"""Receivers whose pace is learnt."""
