"""Error codes of the JetStream API (`err_code`) that Angarium reacts to; all others are only shown."""

CONSUMER_NOT_FOUND = 10014
MESSAGE_NOT_FOUND = 10037
STORAGE_EXCEEDED = 10047
STORE_FAILED = 10049
MESSAGE_TOO_LARGE = 10054
NO_RESOURCES = 10023
STREAM_FULL = 10077
NO_ROOM = frozenset({NO_RESOURCES, STORAGE_EXCEEDED, STREAM_FULL})
"""Refusals that end when there is room again."""
STREAM_NOT_FOUND = 10059
HEADERS_TOO_LARGE = 10097

WRONG_LAST_SEQUENCE = 10071
"""The code if the expectation is not met: the only refusal that may mean that another process writes here."""

IN_FLIGHT = frozenset({10158, 10164})
"""The codes while the leader still works on the same message id, or on an expectation on the same subject."""
