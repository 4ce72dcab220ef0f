"""The commands of `angarium`, one family a file. What is slow to import is imported where it is used."""
