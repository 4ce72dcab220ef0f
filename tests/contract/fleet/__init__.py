"""The nodes of an installation, and what is seen of receivers."""
