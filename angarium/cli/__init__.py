"""The commands of `angarium`, in folders by subject; what takes long to import is imported where it is used.

Read `main` first: it knows the folder of each command. A command reads its flags, calls an operation
(`angarium.operations`) and prints the result.
"""
