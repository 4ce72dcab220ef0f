"""Transforms of bodies: read `checks` first."""
