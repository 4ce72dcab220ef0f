"""The measuring of the benchmarks, and their sink."""
