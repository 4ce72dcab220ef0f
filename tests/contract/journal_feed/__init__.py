"""Following the journal from outside."""
