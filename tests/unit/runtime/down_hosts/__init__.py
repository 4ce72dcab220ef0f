"""Actors whose host cannot be connected to."""
