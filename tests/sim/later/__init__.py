"""Events that wait for their time: what is checked in every run, scenarios, and mutants."""
