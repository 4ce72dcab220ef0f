"""Names on the wire: headers of messages, those of NATS and JetStream and Angarium's own, and error codes.

Angarium's headers are public (`docs/` describes each) and stored, so they never change. Error codes are those
of the JetStream API (`err_code`) that Angarium reacts to; all others are only shown.
"""

# ---- NATS (ADR-4), and the inline statuses that `streams.nats.protocol.parse_block` makes headers of

STATUS = "Status"
DESCRIPTION = "Description"

UNREAD = ":unread"
"""In place of headers that were too many or too large to be parsed: their bytes. No header of a message has
this name, since it contains a colon."""

# ---- JetStream: with a publish

MESSAGE_ID = "Nats-Msg-Id"
EXPECTED = "Nats-Expected-Last-Subject-Sequence"
EXPECTED_SUBJECT = "Nats-Expected-Last-Subject-Sequence-Subject"
"""The subject to which `EXPECTED` refers, if it is not the message's own."""
TTL = "Nats-TTL"
ROLLUP = "Nats-Rollup"
BATCH_ID = "Nats-Batch-Id"
BATCH_SEQUENCE = "Nats-Batch-Sequence"
BATCH_COMMIT = "Nats-Batch-Commit"

# ---- JetStream: on a message of a direct get (ADR-31)

STREAM = "Nats-Stream"
SUBJECT = "Nats-Subject"
SEQUENCE = "Nats-Sequence"
TIME_STAMP = "Nats-Time-Stamp"
NUM_PENDING = "Nats-Num-Pending"
LAST_SEQUENCE = "Nats-Last-Sequence"
DIRECT_GET = (STREAM, SUBJECT, SEQUENCE, TIME_STAMP, NUM_PENDING, LAST_SEQUENCE)
"""All headers that the server adds to such a message."""
UP_TO_SEQUENCE = "Nats-UpTo-Sequence"

# ---- JetStream: on what a consumer hands out (ADR-37, ADR-42)

LAST_CONSUMER = "Nats-Last-Consumer"
PENDING_MESSAGES = "Nats-Pending-Messages"
PENDING_BYTES = "Nats-Pending-Bytes"

# ---- buckets (ADR-8, ADR-43)

KV_OPERATION = "KV-Operation"
MARKER_REASON = "Nats-Marker-Reason"
KV_DELETED = {KV_OPERATION: "DEL"}

# ---- Angarium: an event, and its copies

EVENT_ID = "Angarium-Id"
EVENT_TYPE = "Angarium-Type"
EVENT_SOURCE = "Angarium-Source"
EVENT_AGAIN = "Angarium-Again"
EVENT_PUBLISHED = "Angarium-Published"
"""On a copy: when its event was published, by the time of the events' stream, in seconds since 1970."""
EVENT_REGION = "Angarium-Region"
"""On an event and its copies: the region that its data belongs to; receivers elsewhere do not get it."""
EVENT_ABOUT = "Angarium-About"
"""On an event about an alert: the receiver that it is about, which gets no copy."""
DELIVER_AT = "Angarium-Deliver-At"
"""On an event: the time before which it is not delivered, as in RFC 3339."""
ONLY_FOR = "Angarium-To"
"""On a timed event: the name of the only receiver that gets it."""
DUE = "Angarium-Due"
"""On an event that is due: where it waited."""
TAKEN = "Angarium-Taken"
"""On a stub in the place of an entry: the position of the due event that was routed."""
CANCELLED = "Angarium-Cancelled"
"""On a stub in the place of an entry: who cancelled the event."""
CONTENT_TYPE = "Content-Type"
TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"

# ---- Angarium: a dead letter

DEAD_REASON = "Angarium-Reason"
DEAD_SEQUENCE = "Angarium-Sequence"
DEAD_ATTEMPTS = "Angarium-Attempts"
DEAD_STATUS = "Angarium-Status"
DEAD_RESPONSE = "Angarium-Response"
"""The beginning of the last attempt's answer, percent-encoded; absent if the node that had it is gone."""
DEAD_PROBLEM = "Angarium-Problem"
"""The problem of a malformed event, in a sentence."""
DEAD_TRANSFORM = "Angarium-Transform"
"""The transform by which the body was to be shaped: revision of its configuration, and hash."""
DEAD_BODY = "Angarium-Body"
DEAD_LETTER = (
    DEAD_REASON, DEAD_SEQUENCE, DEAD_ATTEMPTS, DEAD_STATUS, DEAD_RESPONSE, DEAD_PROBLEM, DEAD_BODY,
    DEAD_TRANSFORM,
)  # fmt: skip

# ---- Angarium: a configuration

REMOVED = "Angarium-Removed"
"""On a configuration that was put after a removal, which a rollup drops: `<revision> <time>` of the
removal."""
SINCE = "Angarium-Since"
"""On a configuration: when its receiver was put first, or first after a removal, in seconds since 1970; `new`
on that configuration itself. Other clients leave it out."""
SINCE_ITSELF = "new"
CHANGED_BY = "Angarium-By"
"""On a configuration and on a removal: who asked for it, as that client says."""
TRAIL = "Angarium-Trail"
"""On a configuration and on a removal: the changes before it, which a rollup drops, without secrets."""
FINGERPRINTS = "Angarium-Fingerprints"
"""On a configuration with sealed members: a fingerprint of each, which stays while its secrets do."""

# ---- error codes of the JetStream API

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
