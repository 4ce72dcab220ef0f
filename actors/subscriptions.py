"""Subscriptions: a trie over event types for each tenant, with the wildcards of NATS subjects.

`*` stands for one token, `>` at the end for one or more, so that `order.>` does not match `order`. Types that
begin with `angarium.` match only patterns that begin with `angarium.`: who subscribes to everything does not
get alerts.
"""

from collections.abc import Iterable
from itertools import count

from actors.ids import OUR_TYPES, tenant_of

REMEMBERED_COST_MAX = 1 << 18
"""Number of receivers in all cached answers; each takes 8 bytes."""

ANSWER_COST = 32
"""The cost of a cached answer, in addition to the receivers in it."""


class _Node:
    """A node of the trie.

    - `next`: the nodes below it, by token.
    - `here`: the receivers whose pattern ends here.
    - `rest`: the receivers whose pattern has `>` here.
    """

    __slots__ = ("here", "next", "rest")

    def __init__(self) -> None:
        self.next: dict[str, _Node] = {}
        self.here: dict[str, None] = {}
        self.rest: dict[str, None] = {}

    @property
    def is_bare(self) -> bool:
        return not (self.next or self.here or self.rest)


_NOTHING = _Node()


class _Tenant:
    """The subscriptions of a tenant; `version` changes with them, and no other tenant has the same one."""

    __slots__ = ("patterns", "root", "version")

    def __init__(self) -> None:
        self.root = _Node()
        self.patterns: dict[str, tuple[str, ...]] = {}
        self.version = 0


class Subscriptions:
    """The subscriptions of all receivers of an installation."""

    def __init__(self) -> None:
        self._tenants: dict[str, _Tenant] = {}
        self._versions = count(1)
        self._answers: dict[tuple[int, str], tuple[str, ...]] = {}
        self._remembered = 0

    def put(self, receiver: str, patterns: Iterable[str]) -> None:
        """Subscribe the receiver `<tenant>.<name>` to these patterns, and to no others."""
        tenant_name = tenant_of(receiver)
        tenant = self._tenants.get(tenant_name) or _Tenant()
        wanted, before = _each_once(tuple(patterns)), tenant.patterns.pop(receiver, ())
        if wanted != before:
            tenant.version = next(self._versions)
            for pattern in before:
                _drop(tenant.root, pattern.split("."), receiver)
            for pattern in wanted:
                _add(tenant.root, pattern.split("."), receiver)
        if wanted:
            tenant.patterns[receiver] = wanted
        if tenant.patterns:
            self._tenants[tenant_name] = tenant
        else:
            self._tenants.pop(tenant_name, None)

    @property
    def tenants(self) -> tuple[str, ...]:
        """The tenants whose receivers subscribe to anything."""
        return tuple(self._tenants)

    def match(self, tenant_name: str, event_type: str) -> tuple[str, ...]:
        """The receivers of the tenant that subscribe to the type, each once, in alphabetical order."""
        tenant = self._tenants.get(tenant_name)
        if tenant is None:
            return ()
        key = (tenant.version, event_type)
        found = self._answers.get(key)
        if found is None:
            matched: dict[str, None] = {}
            root, tokens, at = tenant.root, event_type.split("."), 0
            if event_type.startswith(OUR_TYPES):
                root, at = root.next.get(tokens[0], _NOTHING), 1
            collect_matches(root, tokens, at, matched)
            found = tuple(sorted(matched))
            self._remember(key, found)
        return found

    def _remember(self, key: tuple[int, str], found: tuple[str, ...]) -> None:
        """Cache an answer. Those from before a change are never asked for again; they go with all others."""
        self._remembered += len(found) + ANSWER_COST
        if self._remembered > REMEMBERED_COST_MAX:
            self._answers.clear()
            self._remembered = len(found) + ANSWER_COST
        self._answers[key] = found


def matches(pattern: str, event_type: str) -> bool:
    """True if the type matches the pattern."""
    wanted, tokens = pattern.split("."), event_type.split(".")
    if event_type.startswith(OUR_TYPES) and wanted[0] != tokens[0]:
        return False
    if wanted[-1] == ">":
        wanted.pop()
        if len(tokens) <= len(wanted):
            return False
    elif len(tokens) != len(wanted):
        return False
    return all(each in ("*", token) for each, token in zip(wanted, tokens, strict=False))


def _each_once(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Leave out repetitions. Without any it is the same object, which the policy keeps anyway."""
    different = dict.fromkeys(patterns)
    return patterns if len(different) == len(patterns) else tuple(different)


def _add(node: _Node, tokens: list[str], receiver: str) -> None:
    for token in tokens:
        if token == ">":
            node.rest[receiver] = None
            return
        node = node.next.setdefault(token, _Node())
    node.here[receiver] = None


def _drop(node: _Node, tokens: list[str], receiver: str) -> None:
    """Undo `_add`, and cut the branches that are empty then."""
    if not tokens:
        del node.here[receiver]
    elif tokens[0] == ">":
        del node.rest[receiver]
    else:
        branch = node.next[tokens[0]]
        _drop(branch, tokens[1:], receiver)
        if branch.is_bare:
            del node.next[tokens[0]]


def collect_matches(node: _Node, tokens: list[str], at: int, found: dict[str, None]) -> None:
    if at == len(tokens):
        found.update(node.here)
        return
    found.update(node.rest)
    for token in (tokens[at], "*"):
        branch = node.next.get(token)
        if branch is not None:
            collect_matches(branch, tokens, at + 1, found)
