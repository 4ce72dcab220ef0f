"""Parts that rooms of `streams` share: log lines, questions asked at once, the progress of routing."""
