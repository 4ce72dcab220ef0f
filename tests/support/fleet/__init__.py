"""An installation of real processes under load, and the checks of what its receivers saw."""
