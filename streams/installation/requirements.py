"""Requirements on an existing installation, and what would break without each.

They say whether a difference between the existing configuration and the one that `setup` would create
matters. A limit that an operator has raised is accepted; a setting that breaks a promise is refused.
"""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from streams.installation.topology import STAMP_SHARDS, STAMP_VERSION, VERSION, Names

SHARDS = "shards"
"""The field of the problem that hides all others: with the wrong number of shards nothing else is right."""


class Mismatch(Struct, frozen=True):
    """A field that differs: the value it `has`, the value it must have (`wants`), and what would break."""

    where: str
    field: str
    has: str
    wants: str
    why: str

    def __str__(self) -> str:
        if self.field == SHARDS:
            return f"{self.where} has {self.has} shards, the setting shards says {self.wants}: {self.why}"
        return f"{self.where}: {self.field} is {self.has}, must be {self.wants}: {self.why}"


class MissingStreams(Struct, frozen=True):
    """The streams of an installation that are missing: some, or all of them if `nothing_there`."""

    names: tuple[str, ...]
    prefix: str
    nothing_there: bool

    @property
    def text(self) -> str:
        """The problem, without the remedy."""
        first, count = self.names[0], len(self.names)
        what = (
            f"stream {first} is missing" if count == 1 else f"{count} streams are missing, {first} among them"
        )
        return f"nothing is set up here ({what})" if self.nothing_there else what

    @property
    def remedy(self) -> str:
        """The command that creates them, and the setting that may be wrong."""
        if self.prefix == Names().prefix:
            return "run angarium setup"
        return f"run angarium setup, or correct the prefix {self.prefix} (ANGARIUM_PREFIX)"

    def __str__(self) -> str:
        return f"{self.text}: {self.remedy}"


class _Rule(Struct, frozen=True):
    """A rule on a field: `holds(has, wants)`; `absent` is the value if the server leaves the field out."""

    field: str
    absent: Any
    holds: Callable[[Any, Any], bool]
    why: str


def _same(has: Any, wants: Any) -> bool:
    return bool(has == wants)


def _at_least(has: Any, wants: Any) -> bool:
    return bool(has >= wants)


def _for_as_long(has: int, wants: int) -> bool:
    return has == 0 or (wants != 0 and has >= wants)


def _as_large(has: int, wants: int) -> bool:
    return has == -1 or (wants != -1 and has >= wants)


_STREAM_RULES = (
    _Rule("subjects", [], _same, "events would be stored elsewhere or nowhere"),
    _Rule(
        "subject_transform", None, _same, "receivers would change their shards, and with them their numbers"
    ),
    _Rule("retention", "limits", _same, "events would vanish with their ack, before they are settled"),
    _Rule("storage", "file", _same, "nothing would outlive a restart of the server"),
    _Rule("discard", "old", _same, "a full stream would drop accepted messages"),
    _Rule("max_msgs", -1, _as_large, "the stream would refuse messages while it still has room"),
    _Rule("max_msgs_per_subject", -1, _same, "a subject would lose messages, or a key would keep old values"),
    _Rule("max_age", 0, _for_as_long, "messages would expire while they are still needed"),
    _Rule("max_msg_size", -1, _as_large, "an accepted event might not fit where it has to go next"),
    _Rule("duplicate_window", 0, _at_least, "a repeated publish would be stored twice"),
    _Rule("num_replicas", 1, _at_least, "the loss of one server would lose its messages"),
    _Rule("allow_direct", False, _same, "reads would fail, or be answered by a replica where they must not"),
    _Rule("allow_atomic", False, _at_least, "snapshots could not be written"),
    _Rule("allow_msg_ttl", False, _at_least, "nodes that died would be shown, and stubs kept, forever"),
    _Rule("allow_rollup_hdrs", False, _at_least, "keys could not be purged"),
    _Rule("sealed", False, _same, "nothing could be stored"),
    _Rule("mirror", None, _same, "nothing could be stored"),
    _Rule("sources", None, _same, "messages of other streams would be taken for ours"),
)


def stream_problems(wanted: dict[str, Any], actual: dict[str, Any]) -> list[Mismatch]:
    """The problems of a stream. If its version or shard count differs, nothing else is checked."""
    where = f"stream {wanted['name']}"
    stamped = _stamp_problems(where, wanted["metadata"], actual.get("metadata") or {})
    return stamped or _problems(where, _STREAM_RULES, wanted, actual)


def _problems(
    where: str, rules: tuple[_Rule, ...], wanted: dict[str, Any], actual: dict[str, Any]
) -> list[Mismatch]:
    found: list[Mismatch] = []
    for rule in rules:
        wants, has = (config.get(rule.field, rule.absent) for config in (wanted, actual))
        if not rule.holds(has, wants):
            found.append(Mismatch(where, rule.field, str(has), str(wants), rule.why))
    return found


def _stamp_problems(where: str, wanted: dict[str, str], actual: dict[str, str]) -> list[Mismatch]:
    shards = actual.get(STAMP_SHARDS, wanted[STAMP_SHARDS])
    if shards != wanted[STAMP_SHARDS]:
        why = (
            f"set it to {shards} (--shards, ANGARIUM_SHARDS or angarium.toml); the number is fixed for the "
            "life of an installation; another number needs another prefix"
        )
        return [Mismatch("the installation", SHARDS, shards, wanted[STAMP_SHARDS], why)]
    version = actual.get(STAMP_VERSION, str(VERSION))
    if not version.isdecimal() or int(version) > VERSION:
        why = "it was made by a newer Angarium; upgrade this one"
        return [Mismatch(where, "the version", version, str(VERSION), why)]
    if int(version) < VERSION:
        why = "it was made by an older Angarium; stop all nodes, and run `angarium setup` once"
        return [Mismatch(where, "the version", version, str(VERSION), why)]
    return []
