"""The texts of commands, and which command they recommend."""
