"""Dead letters: stored and found."""
