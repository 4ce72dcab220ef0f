"""One HTTP/1.1 answer, parsed as its bytes come in, every bound counted to the byte.

The grammar is llhttp's, through httptools. This module decides the cases that it leaves open:

- It buffers a header without limit. So at most `HEAD_MAX` bytes, interim answers included, are fed to it
  before the headers are complete. Everything after them (body, chunk headers, trailers) is bounded as well.
- It does not count headers. Thousands of tiny ones would take twenty times their size in memory, for as long
  as the answer takes, so `HEADERS_MAX` limits their number.
- It reports 1xx answers like any other. They are skipped, `INTERIM_MAX` of them; 101 ends the exchange, since
  no other protocol was requested.
- It accepts the status lines of HTTP/0.9, HTTP/2 and RTSP. They are refused.
- It would continue to a second answer. Bytes after the first do not change the outcome, but the connection is
  not reused.

This module uses no event loop: the connection feeds bytes and asks whether the answer is over.
"""

from httptools import HttpParserCallbackError, HttpParserError, HttpResponseParser

from angarium.delivery.http_exchange.transport import (
    BODY_MAX,
    HEAD_MAX,
    HEADERS_MAX,
    INTERIM_MAX,
    FailureKind,
    Response,
    decoded,
    one_line,
)

REST_BYTES_MAX = 256 * 1024
"""Bytes that are read after the headers; it cuts a body short only if its chunks have a few bytes each."""


class _Stop(Exception):
    """Raised in a callback to stop the parser; the reason is noted in the answer."""


class Answer:
    """The answer of one exchange; `reset` makes it ready for the next one on the same connection.

    - `headed`: the headers of the final answer are complete, so the status decides in any case.
    - `over`: nothing more needs to be read.
    - `reusable`: the answer ended where its framing says, and the connection stays open.
    - `fault`: why there is no answer, once that is certain.
    - `status`: 0 until it is known.
    """

    __slots__ = ("_body", "_fed", "_headers", "_interim", "_parser", "_room", "fault", "headed", "over",
                 "reusable", "status")  # fmt: skip

    def __init__(self) -> None:
        self._parser = HttpResponseParser(self)
        self.reset()

    def reset(self) -> None:
        """Forget the previous answer."""
        self.status = 0
        self.headed = self.over = self.reusable = False
        self.fault: tuple[FailureKind, str] | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._body = bytearray()
        self._room = BODY_MAX
        self._fed = self._interim = 0

    def release(self) -> None:
        """Drop the parser, which refers back to this object, so that both are freed without the collector."""
        del self._parser

    @property
    def has_begun(self) -> bool:
        """True if at least one byte of an answer has come."""
        return self._fed > 0 or self.fault is not None

    def feed(self, data: bytes) -> bool:
        """Take bytes in and return `over`."""
        if self._fed + len(data) <= HEAD_MAX and (self._fed or data[:1] == b"H"):
            self._parse(data)  # No bound is near, wherever the headers end.
            return self.over
        if not self.headed:
            data = self._feed_head(data)
        if data:
            self._parse(data)
            if not self.over and (self._room < 0 or self._fed > HEAD_MAX + REST_BYTES_MAX):
                self.over, self.reusable = True, False
        return self.over

    def response(self, latency_s: float) -> Response:
        """The answer as read so far; only once `headed`."""
        return Response(
            status=self.status,
            headers=decoded(self._headers),
            body=bytes(self._body),
            latency_s=latency_s,
            size=self._fed,
        )

    def _feed_head(self, data: bytes) -> bytes:
        """Parse up to the bound of the headers; returns the rest of `data`, if they ended."""
        if not self._fed and data[:1] != b"H":
            self._refuse(FailureKind.PROTOCOL, "malformed answer: does not begin with HTTP/")
            return b""
        room = HEAD_MAX - self._fed
        self._parse(data[:room])
        if not self.headed and self.fault is None:
            self._refuse(FailureKind.HEADERS_TOO_LARGE, f"headers over {HEAD_MAX} bytes")
        return b"" if self.fault else data[room:]

    def _parse(self, data: bytes) -> None:
        self._fed += len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserError as error:
            self.reusable = False
            if self.over:
                return
            if isinstance(error, HttpParserCallbackError):
                raise
            if self.headed:
                self.over = True
            else:
                self._refuse(FailureKind.PROTOCOL, one_line(f"malformed answer: {error}"))

    def _refuse(self, kind: FailureKind, why: str) -> None:
        self.fault = (kind, why)
        self.over, self.reusable = True, False

    # httptools calls these.

    def on_message_begin(self) -> None:
        if self.over:
            raise _Stop

    def on_status(self, _: bytes) -> None:
        self.status = self._parser.get_status_code()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.headed:
            return
        if len(self._headers) == HEADERS_MAX:
            self._refuse(FailureKind.HEADERS_TOO_LARGE, f"more than {HEADERS_MAX} headers")
            raise _Stop
        self._headers.append((name, value.strip(b" \t")))  # RFC 9110, 5.5: the parser keeps those after it.

    def on_headers_complete(self) -> None:
        parser = self._parser
        self.status = parser.get_status_code()
        if self.status < 200:
            self._skip_interim()
            return
        self.reusable = parser.should_keep_alive()
        if not self.reusable and parser.get_http_version() not in ("1.0", "1.1"):
            self._refuse(FailureKind.PROTOCOL, "neither HTTP/1.1 nor HTTP/1.0")
            raise _Stop
        self.headed = True

    def on_body(self, data: bytes) -> None:
        if self._room > 0:
            self._body += data[: self._room]
        self._room -= len(data)

    def on_message_complete(self) -> None:
        if self.headed:
            self.over = True

    def _skip_interim(self) -> None:
        self._interim += 1
        self._headers.clear()
        if self.status < 100 or self.status == 101:
            self._refuse(FailureKind.PROTOCOL, f"unexpected status {self.status:03d}")
        elif self._interim > INTERIM_MAX:
            self._refuse(FailureKind.PROTOCOL, f"more than {INTERIM_MAX} interim answers")
        else:
            return
        raise _Stop
