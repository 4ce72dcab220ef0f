"""Refusals of nats-server: its codes and its texts."""

from msgspec import Struct


class Refusal(Struct, frozen=True):
    """The `error` member of an answer."""

    code: int
    err_code: int
    description: str


class Refused(Exception):
    """A request of the API ends in this refusal."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.description)
        self.refusal = refusal


BAD_REQUEST = Refusal(400, 10003, "bad request")
UNAVAILABLE = Refusal(503, 10008, "JetStream system temporarily unavailable")
CONSUMER_NOT_FOUND = Refusal(404, 10014, "consumer not found")
CONSUMER_NAME_MISMATCH = Refusal(
    400, 10017, "consumer name in subject does not match durable name in request"
)
MESSAGE_NOT_FOUND = Refusal(404, 10037, "no message found")
MESSAGE_TOO_LARGE = Refusal(400, 10054, "message size exceeds maximum allowed")
STREAM_NAME_MISMATCH = Refusal(400, 10056, "stream name in subject does not match request")
STREAM_EXISTS = Refusal(400, 10058, "stream name already in use with a different configuration")
STREAM_NOT_FOUND = Refusal(404, 10059, "stream not found")
WRONG_STREAM = Refusal(400, 10060, "expected stream does not match")
SUBJECTS_OVERLAP = Refusal(400, 10065, "subjects overlap with an existing stream")
NO_REPLICAS = Refusal(500, 10074, "replicas > 1 not supported in non-clustered mode")
HEADERS_TOO_LARGE = Refusal(400, 10097, "header size exceeds maximum allowed of 64k")
PURGE_DENIED = Refusal(500, 10110, "stream purge not permitted")
ROLLUP_DENIED = Refusal(500, 10111, "rollup not permitted")
CONSUMER_EXISTS = Refusal(400, 10148, "consumer already exists")
CONSUMER_MISSING = Refusal(400, 10149, "consumer does not exist")
ID_IN_PROCESS = Refusal(409, 10158, "duplicate message id is in process")
CONFLICT = Refusal(400, 10164, "wrong last sequence")
TTL_INVALID = Refusal(400, 10165, "invalid per-message TTL")
TTL_DISABLED = Refusal(400, 10166, "per-message TTL is disabled")
ATOMIC_DISABLED = Refusal(400, 10174, "atomic publish is disabled")
ATOMIC_NO_SEQUENCE = Refusal(400, 10175, "atomic publish sequence is missing")
ATOMIC_INCOMPLETE = Refusal(400, 10176, "atomic publish batch is incomplete")
ATOMIC_HEADER = Refusal(400, 10177, "atomic publish unsupported header used: Nats-Expected-Last-Msg-Id")
ATOMIC_ID_INVALID = Refusal(400, 10179, "atomic publish batch ID is invalid")
NO_EXPECTED_SEQUENCE = Refusal(400, 10193, "missing sequence for expected last sequence per subject")
ATOMIC_TOO_LARGE = Refusal(400, 10199, "atomic publish batch is too large: 1000")
ATOMIC_COMMIT_INVALID = Refusal(400, 10200, "atomic publish batch commit is invalid")
ATOMIC_DUPLICATE = Refusal(400, 10201, "atomic publish batch contains duplicate message id")
ATOMIC_TOO_MANY = Refusal(429, 10210, "atomic publish too many inflight")


def invalid_json(why: object) -> Refusal:
    return Refusal(400, 10025, f"invalid JSON: {why}")


def invalid_stream(why: str) -> Refusal:
    return Refusal(500, 10052, why)


def invalid_transform(why: object) -> Refusal:
    return Refusal(400, 10156, f"stream transform: {why}")


def wrong_last_sequence(is_at: int) -> Refusal:
    return Refusal(400, 10071, f"wrong last sequence: {is_at}")


def wrong_last_id(is_at: str) -> Refusal:
    return Refusal(400, 10070, f"wrong last msg ID: {is_at}")


def store_full(what: str) -> Refusal:
    return Refusal(503, 10077, f"maximum {what} exceeded")


def rollup_invalid(value: str) -> Refusal:
    return Refusal(500, 10111, f'rollup value invalid: "{value}"')


def not_supported(what: object) -> Refusal:
    """Not the server's: the one in memory was asked for something that it does not know."""
    return Refusal(501, 0, f"the server in memory does not know {what}")
