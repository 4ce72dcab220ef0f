"""The nodes of an installation: which are alive."""
