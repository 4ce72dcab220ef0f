"""Parts that several rooms of `streams` share: log lines, questions asked together, the progress of routing."""
