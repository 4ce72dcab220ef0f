"""Events that wait for their time: checks of every run, scenarios, mutants."""
