"""The command `dead`: list, show, send again or drop dead letters. Read `dead` first."""
