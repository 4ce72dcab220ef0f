"""Seals stored secrets with a key of the installation, and opens them again. Knows no bucket.

Read `keys` first (one value), then `documents` (all secrets of a configuration); `key_file` reads the keys.
"""
