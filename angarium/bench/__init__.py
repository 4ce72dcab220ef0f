"""Measuring Angarium beside what bare clients can do on the same machine, in the same run."""
