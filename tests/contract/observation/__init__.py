"""An installation seen from outside: its receivers, and the events that wait to be routed."""
