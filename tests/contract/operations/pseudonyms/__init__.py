"""Tests of pseudonyms, from the configurations of their receivers."""
