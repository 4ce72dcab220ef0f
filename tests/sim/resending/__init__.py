"""Runs with replays, redrives and erasures: `resending_run` makes them, `judgement` judges them."""
