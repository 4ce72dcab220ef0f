"""Reading the journal from outside, without a server."""
