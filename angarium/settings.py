"""The settings of an installation and of a process, and where they come from.

A setting has one name in three places: the flag `--log-format` wins over the variable `ANGARIUM_LOG_FORMAT`,
and that over `log_format = …` in `angarium.toml`. The file is the one that `--config` or `ANGARIUM_CONFIG`
names, else `./angarium.toml` if it exists. Unknown keys in it are refused; unknown variables are only
reported, since others may set some, as Kubernetes does for a service called angarium.
"""

import ipaddress
import os
import re
import secrets
import socket
import tomllib
from collections.abc import Callable, Collection, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from msgspec import Meta, Struct, field, inspect

from actors.allowed_values import allowed, closest, conversion_problem
from actors.configuration.policy import Rate
from actors.errors import BadInput, InvalidName
from actors.ids import check_tenant
from actors.tenant_settings import ALL_OTHERS, InstallationAlerts, TenantSettings
from angarium import egress_settings, quantities
from angarium.egress_settings import Profiles, ProxySettings, TlsSettings

USUAL_FILE = "angarium.toml"
VARIABLE_PREFIX = "ANGARIUM_"
ELECTION_MAX_S = 5.0
"""Time that is longer than the election of a stream's leader (at most 4.6 s, measured with three
replicas)."""
REPLICATED_TTL_S = 10.0
"""Default of `ttl_s` with replicas: the lease of a live node must outlast an election."""

FILE_SETTINGS = ("creds", "nkey", "tls_ca", "tls_cert", "tls_key", "key_file")
_SINGULAR = {
    "allow_networks": "allow-network", "deny_networks": "deny-network", "answer_inboxes": "answer-inbox",
    "cors_origins": "cors-origin",
}  # fmt: skip
_SIZES = frozenset({"max_body", "max_bytes"})
_ADDRESSES = frozenset({"monitor", "api", "api_monitor", "ledger_monitor"})
TABLES = frozenset({"tenants", "alerts", "proxies", "tls"})
"""Settings that only a file can have."""
_SIZES_OF_TENANT = ("backlog_max_bytes", "dead_letters_max_bytes")
_PREFIX = re.compile(r"[a-z][a-z0-9_-]{0,31}\Z")
_LABEL = "[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
_ORIGIN = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(\.{_LABEL})*\Z")
_INBOX_PREFIX = re.compile(r"(?!_G?R_(\.|\Z))_[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,64}){0,3}\Z")
"""No stream of an installation and no API of NATS begins with `_`; `_R_` and `_GR_` are nats-server's own."""
_INBOXES = "must begin with _, then up to 63 of A-Z a-z 0-9 _ -, such as _INBOX_ops, and not be _R_ or _GR_"
_VARIABLE = re.compile(r"ANGARIU[MN]_", re.IGNORECASE)
_OTHERS_VARIABLE = re.compile(
    r"ANGARIUM_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_[A-Z]+)?)?|PASSWORD)\Z"
)
"""Variables that Kubernetes makes for services, and passwords of deploy/nats/permissions.conf."""
_NODE = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")


class SettingsError(BadInput):
    """A setting that cannot be used; each problem names the setting, where it came from, and the remedy."""


def _node_name() -> str:
    """A new name at each start: two processes with one name would mistake each other for themselves."""
    host = re.sub(r"[^A-Za-z0-9_-]", "-", socket.gethostname())[:48]
    return f"{host}-{secrets.token_hex(3)}"


def worker_name(node: str, number: int) -> str:
    """The name of a worker, from 1 on. It stays the same when the worker starts again."""
    return f"{node}-{number}"


def is_worker_of(name: str, node: str) -> bool:
    """True if a worker of `node` may have this name."""
    beginning, _, number = name.rpartition("-")
    return beginning == node and number.isdecimal()


class Settings(Struct, frozen=True, kw_only=True):
    """All settings, complete and within bounds. Its repr shows nothing: URLs may hold passwords."""

    nats: Annotated[tuple[str, ...], Meta(description="NATS servers, nats://host:port, comma-separated")] = (
        "nats://127.0.0.1:4222",
    )
    creds: Annotated[str | None, Meta(description="file with NATS credentials (JWT and seed)")] = None
    nkey: Annotated[str | None, Meta(description="file with the seed of a NATS nkey")] = None
    tls_ca: Annotated[str | None, Meta(description="file with the CA that signed the NATS server")] = None
    tls_cert: Annotated[str | None, Meta(description="file with the client certificate for NATS")] = None
    tls_key: Annotated[str | None, Meta(description="file with the private key for tls_cert")] = None
    prefix: Annotated[
        str, Meta(description="name of the installation: all its subjects and streams begin with it")
    ] = "angarium"
    inbox_prefix: Annotated[str, Meta(description="prefix of the inboxes in which NATS answers us")] = (
        "_INBOX"
    )

    key_file: Annotated[
        str | None, Meta(description="file with the keys that seal receivers' secrets in NATS")
    ] = None

    shards: Annotated[int, Meta(ge=1, le=1024, description="number of shards; cannot be changed later")] = 64
    replicas: Annotated[int, Meta(ge=1, le=5, description="copies of each stream (1, 3 or 5)")] = 1
    max_body: Annotated[
        int, Meta(ge=1024, le=8 << 20, description="largest body of an event (bytes, or 256KiB)")
    ] = 256 << 10
    max_bytes: Annotated[
        Annotated[int, Meta(ge=1 << 20)] | None,
        Meta(description="room for events on disk, for each stream (bytes, or 20GiB)"),
    ] = None

    node: Annotated[str, Meta(description="unique name of this node")] = field(default_factory=_node_name)
    workers: Annotated[
        int, Meta(ge=1, le=64, description="number of processes, each a node: NODE-1, NODE-2, …")
    ] = 1
    ttl_s: Annotated[float, Meta(ge=2, le=60, description="silence after which a node counts as dead")] = 5.0
    drain_s: Annotated[
        float, Meta(ge=0, le=300, description="time that attempts in flight get when a node stops")
    ] = 10.0
    replay_keep_s: Annotated[
        float, Meta(ge=0, le=604_800, description="time that settled events are kept for replays")
    ] = 86_400.0
    allow_http: Annotated[bool, Meta(description="allow receivers with http:// URLs")] = False
    allow_networks: Annotated[
        tuple[str, ...], Meta(description="allow receivers in this non-public network, such as 10.0.0.0/8")
    ] = ()
    deny_networks: Annotated[
        tuple[str, ...],
        Meta(description="never connect to this network, even if it is public or allowed"),
    ] = ()
    proxies: Annotated[
        dict[str, ProxySettings],
        Meta(description="proxies for connections to receivers, by the names that configurations use"),
    ] = field(default_factory=dict)
    tls: Annotated[
        dict[str, TlsSettings],
        Meta(description="client certificates and authorities, by the names that configurations use"),
    ] = field(default_factory=dict)
    allow_direct: Annotated[
        bool, Meta(description="allow receivers to do without the proxy named default")
    ] = False
    transport: Annotated[
        Literal["http1", "httpx"],
        Meta(description="HTTP client for receivers; httpx needs the extra httpx (see README)"),
    ] = "http1"
    origin: Annotated[
        str, Meta(description="name of this sender for receivers that consent (handshake cloudevents)")
    ] = "angarium"
    default_rate: Annotated[
        str | None, Meta(description="rate of receivers without their own, such as 10/second or 10/s")
    ] = None
    default_burst: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000)] | None, Meta(description="burst for default_rate")
    ] = None

    answer_inboxes: Annotated[
        tuple[str, ...],
        Meta(description="prefix of inboxes that nodes answer, in addition to _INBOX and our own"),
    ] = ()

    monitor: Annotated[
        str | None, Meta(description="address of /healthz, /readyz and /metrics, such as 127.0.0.1:9464")
    ] = None
    api_monitor: Annotated[
        str | None,
        Meta(description="address of /metrics of the HTTP API, such as 127.0.0.1:9465"),
    ] = None
    ledger_monitor: Annotated[
        str | None,
        Meta(description="address of /metrics of the ledger's writer, such as 127.0.0.1:9466"),
    ] = None
    metrics_names: Annotated[
        int,
        Meta(ge=0, le=1000, description="receivers and tenants that metrics name, the largest; 0: none"),
    ] = 0
    trace_failures: Annotated[
        bool, Meta(description="export the spans of failed deliveries even if their traces are not sampled")
    ] = False

    api: Annotated[str, Meta(description="address of the HTTP API, such as 0.0.0.0:8080")] = "127.0.0.1:8080"
    cors_origins: Annotated[
        tuple[str, ...],
        Meta(description="let pages of this origin use the HTTP API, such as https://ops.example.com"),
    ] = ()

    console_url: Annotated[
        str | None,
        Meta(description="address of the console for people, such as https://hooks.example.com"),
    ] = None

    tenants: Annotated[
        dict[str, TenantSettings],
        Meta(description="weight, rate and quotas of tenants, by name; * is all others"),
    ] = field(default_factory=dict)

    alerts: Annotated[
        InstallationAlerts, Meta(description="limits of alerts about receivers, unless a tenant sets others")
    ] = InstallationAlerts()

    ledger: Annotated[
        str, Meta(description="where the ledger is, sqlite:///a/file or postgresql://user@host/database")
    ] = "sqlite:///.angarium/ledger.db"

    log_format: Annotated[Literal["text", "json"], Meta(description="format of the log")] = "text"
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="lowest level to log")
    ] = "info"

    def __repr__(self) -> str:
        return "Settings(…)"

    @property
    def profiles(self) -> Profiles:
        """The profiles that receivers can name."""
        return Profiles(self.proxies, self.tls, self.allow_direct)

    @property
    def rate(self) -> Rate | None:
        """The rate of a receiver without one of its own; None: no limit."""
        return (
            None
            if self.default_rate is None
            else quantities.parse_rate(self.default_rate, self.default_burst)
        )


class Given(Struct, frozen=True):
    """A value as it was given, and where."""

    value: Any
    source: str


def load(
    flags: Mapping[str, Any], environ: Mapping[str, str] = os.environ, usual: Mapping[str, Any] | None = None
) -> Settings:
    """The settings from flags (None: not given), variables and file, else from `usual`, else the defaults.

    `flags` may hold `config`, the path of the file. Raises SettingsError.
    """
    file, where = _file(flags.get("config"), environ)
    fields = msgspec.structs.fields(Settings)
    names = {each.name for each in fields}
    problems = [
        f"{name} ({where}): unknown setting; {_instead(_closest(name, names)) or 'check the spelling'}"
        for name in sorted(file.keys() - names)
    ]
    overrides = {
        each.name: found
        for each in fields
        if (found := _override(each.name, flags, environ, file, where)) is not None
    }
    values: dict[str, Any] = dict(usual or {})
    for each in fields:
        if (found := overrides.get(each.name)) is not None:
            if each.name in TABLES:
                values[each.name], wrong = _READ_TABLE[each.name](found.value)
                problems += [f"{name} ({found.source}): {why}" for name, why in wrong]
                continue
            try:
                values[each.name] = _convert(each.name, each.type, found.value)
            except msgspec.ValidationError:
                shown = "" if each.name == "nats" else f", not {found.value!r}"  # It may hold a password.
                wanted = allowed(inspect.type_info(each.type))
                wanted += " (bytes, such as 1048576, or 1MiB; 1MB is 1000000)" * (each.name in _SIZES)
                problems.append(f"{each.name} ({found.source}): must be {wanted}{shown}")
            except quantities.BadQuantity as error:
                problems.append(f"{each.name} ({found.source}): {error}")
    if values.get("replicas", 1) > 1:
        values.setdefault("ttl_s", REPLICATED_TTL_S)
    if not problems:
        settings = Settings(**values)
        problems = [f"{name} ({_source(name, overrides)}): {why}" for name, why in _contradictions(settings)]
        if not problems:
            return settings
    raise SettingsError("; ".join(problems))


def _source(name: str, overrides: Mapping[str, Given]) -> str:
    """The source of a setting; `name` may be a member of a table."""
    given = overrides.get(name.partition(".")[0])
    return given.source if given else "default"


class UnknownVariable(Struct, frozen=True):
    """A variable that is no setting, and the one that was probably `meant`."""

    name: str
    meant: str | None

    def __str__(self) -> str:
        return f"the variable {self.name} is not a setting; {_instead(self.meant) or 'it is ignored'}"


def unknown_variables(environ: Mapping[str, str] = os.environ) -> list[UnknownVariable]:
    """The variables that look like settings of Angarium and are not."""
    known = {each.upper() for each in Settings.__struct_fields__ if each not in TABLES} | {"CONFIG"}
    found = []
    for name in sorted(environ.keys() - {VARIABLE_PREFIX + each for each in known}):
        if _VARIABLE.match(name) and not _OTHERS_VARIABLE.match(name):
            suggestion = _closest(name[len(VARIABLE_PREFIX) :].upper(), known)
            found.append(UnknownVariable(name, VARIABLE_PREFIX + suggestion if suggestion else None))
    return found


def _closest(name: str, known: Collection[str]) -> str | None:
    """The known name that is most like this one; if none is, one that ends with it."""
    longer = (each for each in sorted(known) if name and each.endswith(f"_{name}"))
    return closest(name, known) or next(longer, None)


def _instead(suggestion: str | None) -> str:
    return f"did you mean {suggestion}?" if suggestion else ""


def _file(flag: str | None, environ: Mapping[str, str]) -> tuple[dict[str, Any], str]:
    """The members of the settings file, and its name for messages."""
    named = flag or environ.get(f"{VARIABLE_PREFIX}CONFIG")
    path = Path(named or USUAL_FILE)
    try:
        return tomllib.loads(path.read_text(encoding="utf-8")), str(path)
    except FileNotFoundError:
        if named is None:
            return {}, USUAL_FILE
        raise SettingsError(f"config ({path}): no such file; correct --config or ANGARIUM_CONFIG") from None
    except OSError as error:
        raise SettingsError(f"config ({path}): cannot be read ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"config ({path}): not valid TOML ({error})") from None


def _override(
    name: str, flags: Mapping[str, Any], environ: Mapping[str, str], file: dict[str, Any], where: str
) -> Given | None:
    """The value that wins. Flags that may be repeated arrive as tuples, empty if none was given."""
    # `receiver put` has a flag --tls, which is no setting.
    flag = None if name in TABLES else flags.get(name)
    if flag is not None and flag != ():
        return Given(flag, flag_name(name))
    variable = VARIABLE_PREFIX + name.upper()
    if name not in TABLES and environ.get(variable):
        return Given(environ[variable], variable)
    return Given(file[name], where) if name in file else None


def flag_name(name: str) -> str:
    """The flag of a setting; one that may be repeated has its name in the singular."""
    return "--" + _SINGULAR.get(name, name.replace("_", "-"))


def is_list(kind: Any) -> bool:
    """True if a setting takes several values; flags and variables separate them by commas."""
    return get_origin(get_args(kind)[0] if get_origin(kind) is Annotated else kind) is tuple


def _convert(name: str, kind: Any, value: Any) -> Any:
    if name in _SIZES and isinstance(value, str):
        value = quantities.parse_size(value)
    if name == "default_rate":
        quantities.parse_rate(value if isinstance(value, str) else repr(value))
    if name in _ADDRESSES and isinstance(value, str):
        quantities.parse_address(value)
    if is_list(kind) and isinstance(value, tuple):
        value = [part.strip(" ") for given in value for part in given.split(",")]
    if is_list(kind) and isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    return msgspec.convert(value, kind, strict=not isinstance(value, str))


def _alerts(value: Any) -> tuple[InstallationAlerts, list[tuple[str, str]]]:
    """The limits of alerts, and what is wrong: the member, and a sentence."""
    try:
        return msgspec.convert(value, InstallationAlerts), []
    except msgspec.ValidationError as error:
        path, why = conversion_problem(error, InstallationAlerts)
        return InstallationAlerts(), [(f"alerts{path}", why)]


def _tenants(value: Any) -> tuple[dict[str, TenantSettings], list[tuple[str, str]]]:
    """The settings of tenants, and what is wrong: the member, and a sentence."""
    if not isinstance(value, dict) or not all(isinstance(each, dict) for each in value.values()):
        return {}, [("tenants", "must have a table for each tenant, such as [tenants.acme]")]
    found, problems = dict[str, TenantSettings](), list[tuple[str, str]]()
    for tenant, members in value.items():
        try:
            if tenant != ALL_OTHERS:
                check_tenant(tenant)
            found[tenant] = _tenant(members)
        except InvalidName as error:
            problems.append((f"tenants.{tenant}", f"{error}; or write * for all tenants without a table"))
        except quantities.BadQuantity as error:
            problems.append((f"tenants.{tenant}", str(error)))
        except msgspec.ValidationError as error:
            path, why = conversion_problem(error, TenantSettings)
            problems.append((f"tenants.{tenant}{path}", why))
    return found, problems


def _tenant(members: dict[str, Any]) -> TenantSettings:
    """Raises `BadQuantity` and `msgspec.ValidationError`."""
    read = dict(members)
    if isinstance(rate := members.get("rate"), str):
        read["rate"] = msgspec.to_builtins(quantities.parse_rate(rate))
    for name in _SIZES_OF_TENANT:
        if isinstance(size := members.get(name), str):
            read[name] = quantities.parse_size(size)
    return msgspec.convert(read, TenantSettings)


_READ_TABLE: dict[str, Callable[[Any], tuple[Any, list[tuple[str, str]]]]] = {
    "tenants": _tenants, "alerts": _alerts, "proxies": egress_settings.read_proxies,
    "tls": egress_settings.read_tls_profiles,
}  # fmt: skip


def _contradictions(settings: Settings) -> list[tuple[str, str]]:
    """Checks what no type can express; yields setting and sentence."""
    found = [
        (name, "no such file; give the path of one")  # Not shown: it may be the key itself.
        for name in FILE_SETTINGS
        if (path := getattr(settings, name)) is not None and not os.path.isfile(path)
    ]
    if not settings.nats:
        found.append(("nats", "is empty; give a server such as nats://127.0.0.1:4222"))
    elif not all(map(quantities.is_server_address, settings.nats)):
        # Not shown: it may hold a password.
        found.append(
            ("nats", "this is not a list of server addresses; write nats://host:4222, separated by commas")
        )
    for name in ("allow_networks", "deny_networks"):
        for network in getattr(settings, name):
            try:
                ipaddress.ip_network(network)
            except ValueError as error:
                found.append((name, f"{error}; write it as 10.0.0.0/8 or fd00::/8"))
    found += egress_settings.profile_problems(settings.proxies, settings.tls)
    if settings.transport == "httpx" and (settings.proxies or settings.tls):
        found.append(("transport", "httpx knows neither proxies nor TLS profiles; use http1 with them"))
    if settings.transport == "httpx" and find_spec("httpcore") is None:
        found.append(
            ("transport", "httpx is not installed; install the extra httpx (see README), or use http1")
        )
    if not _ORIGIN.match(settings.origin):
        found.append(("origin", "must be a name as in DNS, such as events.example.com"))
    if not _PREFIX.match(settings.prefix):
        found.append(("prefix", "must be a lower-case letter, then up to 31 of a-z 0-9 _ -"))
    prefixes = [("inbox_prefix", settings.inbox_prefix)]
    prefixes += [("answer_inboxes", each) for each in settings.answer_inboxes]
    found += [(name, _INBOXES) for name, each in prefixes if not _INBOX_PREFIX.match(each)]
    if settings.console_url is not None and not quantities.is_console_url(settings.console_url):
        found.append(("console_url", "must be an address such as https://hooks.example.com, with TLS"))
    if not _NODE.match(settings.node):
        found.append(("node", "must be 1 to 64 of A-Z a-z 0-9 _ -"))
    elif settings.workers > 1 and not _NODE.match(worker_name(settings.node, settings.workers)):
        found.append(("node", "is too long: workers add their numbers, and then it must be at most 64"))
    if settings.workers > settings.shards:
        found.append(("workers", f"must be at most {settings.shards}, as shards: one shard has one owner"))
    if settings.replicas not in (1, 3, 5):
        found.append(("replicas", "must be 1, 3 or 5, so that a majority is clear"))
    if settings.replicas > 1 and settings.ttl_s <= ELECTION_MAX_S:
        found.append(
            ("ttl_s", f"must be above {ELECTION_MAX_S:g} with replicas: electing a leader may take that long")
        )
    if settings.default_burst is not None and settings.default_rate is None:
        found.append(("default_burst", "needs default_rate; set that too"))
    if (settings.tls_cert is None) != (settings.tls_key is None):
        found.append(("tls_cert", "goes with tls_key; give both or neither"))
    return found
