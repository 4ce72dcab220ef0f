"""Tests of transforms: the shape of a body, and the attempts with shaped bodies."""
