"""Profiles of egress in the settings: proxies, and TLS with client certificates and extra authorities.

A receiver names its profiles (`"proxy": "eu"`, `"tls": "partner"`); what they mean is the operator's. So no
file, user or password of them is in a configuration, and a receiver can neither use a path that its tenant is
not offered, nor bypass the default proxy.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from actors.allowed_values import conversion_problem
from actors.configuration.policy import DEFAULT_PROXY, Policy
from actors.configuration.problems import is_profile_name
from actors.ids import tenant_of

_FileName = Annotated[str, Meta(min_length=1)]


class ProxySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A proxy for connections to receivers, by CONNECT.

    - `url`: `http://host:port`, or `https://host:port` for a proxy that uses TLS.
    - `user`: with the password in `password_file`, or in the variable that `password_variable` names.
    - `resolve`: `here`: the node resolves and judges names, and asks the proxy for an address; `there`: the
      proxy resolves them, and its own rules decide.
    - `tls`: the TLS profile for the connection to the proxy itself.
    - `tenants`: those whose receivers may use it; empty: all.
    """

    url: str
    user: str | None = None
    password_file: _FileName | None = None
    password_variable: _FileName | None = None
    resolve: Literal["here", "there"] = "here"
    tls: str | None = None
    tenants: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return "ProxySettings(…)"


class TlsSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Files for TLS, in PEM.

    - `certificate`: the client certificate, with its chain; `key`: its key, by default in the same file.
    - `authorities`: authorities that are trusted in addition to the system's.
    - `tenants`: those whose receivers may use it; empty: all.
    """

    certificate: _FileName | None = None
    key: _FileName | None = None
    authorities: _FileName | None = None
    tenants: tuple[str, ...] = ()


class Profiles(Struct, frozen=True):
    """All profiles of a node, by their names. `allow_direct`: receivers may do without the default proxy."""

    proxies: Mapping[str, ProxySettings]
    tls: Mapping[str, TlsSettings]
    allow_direct: bool = False

    def problems(self, receiver: str, policy: Policy) -> tuple[str, ...]:
        """Say why a node with these profiles cannot send to the receiver; empty if it can."""
        tenant = tenant_of(receiver)
        found = []
        if policy.proxy is None:
            if DEFAULT_PROXY in self.proxies and not self.allow_direct:
                why = "null (no proxy) is refused; leave it out, or ask the operator to allow it"
                found.append(f"proxy: {why} (setting allow_direct)")
        elif policy.proxy != DEFAULT_PROXY or DEFAULT_PROXY in self.proxies:
            found += _missing("proxy", "proxies", policy.proxy, tenant, self.proxies)
        if policy.tls is not None:
            found += _missing("tls", "tls", policy.tls, tenant, self.tls)
        return tuple(found)


T = TypeVar("T", ProxySettings, TlsSettings)


def _missing(
    member: str, table: str, name: str, tenant: str, profiles: Mapping[str, ProxySettings | TlsSettings]
) -> list[str]:
    """The problem with a named profile, if there is one."""
    profile = profiles.get(name)
    if profile is not None and (not profile.tenants or tenant in profile.tenants):
        return []
    # The same for a profile of another tenant: who may not use it need not know that it exists.
    why = f"nodes have no profile {name} for the tenant {tenant}"
    return [f"{member}: {why}; correct the name, or add [{table}.{name}] to their settings, for this tenant"]


def read_proxies(value: Any) -> tuple[dict[str, ProxySettings], list[tuple[str, str]]]:
    """Read the proxies of a settings file; also returns what is wrong: the member, and a sentence."""
    return _read_profiles("proxies", value, ProxySettings)


def read_tls_profiles(value: Any) -> tuple[dict[str, TlsSettings], list[tuple[str, str]]]:
    """Read the TLS profiles of a settings file; also returns what is wrong: the member, and a sentence."""
    return _read_profiles("tls", value, TlsSettings)


def _read_profiles(table: str, value: Any, kind: type[T]) -> tuple[dict[str, T], list[tuple[str, str]]]:
    if not isinstance(value, dict) or not all(isinstance(each, dict) for each in value.values()):
        return {}, [(table, f"must have a table for each profile, such as [{table}.partner]")]
    found, problems = dict[str, T](), list[tuple[str, str]]()
    for name, members in value.items():
        if not is_profile_name(name):
            problems.append((f"{table}.{name}", "the name of a profile must be 1 to 64 of A-Z a-z 0-9 _ -"))
        try:
            found[name] = msgspec.convert(members, kind)
        except msgspec.ValidationError as error:
            member, why = conversion_problem(error, kind)
            problems.append((f"{table}.{name}{member}", why))
    return found, problems


def profile_problems(
    proxies: Mapping[str, ProxySettings], tls: Mapping[str, TlsSettings]
) -> Iterator[tuple[str, str]]:
    """Yields what no type can express about the profiles: the member, and a sentence.

    Files and variables are left to the node, since other processes read the same settings and need neither.
    """
    for name, proxy in proxies.items():
        for member, why in _proxy_problems(proxy, tls):
            yield f"proxies.{name}.{member}", why
    for name, profile in tls.items():
        for member, why in _tls_problems(profile):
            yield f"tls.{name}{member}", why


def _proxy_problems(proxy: ProxySettings, tls: Mapping[str, TlsSettings]) -> Iterator[tuple[str, str]]:
    if not _is_proxy(proxy.url):
        # Not shown: it may hold a password.
        yield "url", "write it as http://host:port or https://host:port, without user and password"
    given = [each for each in (proxy.password_file, proxy.password_variable) if each is not None]
    if proxy.user is not None and (":" in proxy.user or not proxy.user.isprintable() or not proxy.user):
        yield "user", "must not be empty, nor contain a colon or control characters"
    if len(given) != (proxy.user is not None):
        yield "user", "goes with one of password_file and password_variable"
    if proxy.tls is not None:
        if proxy.tls not in tls:
            yield "tls", f"there is no [tls.{proxy.tls}]; add it, or correct the name"
        elif not proxy.url.startswith("https:"):
            yield "tls", "needs a proxy that uses TLS: url must begin with https://"


def _tls_problems(profile: TlsSettings) -> Iterator[tuple[str, str]]:
    if profile.certificate is None and profile.authorities is None:
        yield "", "needs a certificate, or authorities"
    if profile.key is not None and profile.certificate is None:
        yield ".key", "goes with certificate; give that too"


def _is_proxy(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return (
            url.isprintable() and parts.scheme in ("http", "https") and bool(parts.hostname)
            and bool(parts.port) and "@" not in parts.netloc and parts.path in ("", "/") and not parts.query
        )  # fmt: skip
    except ValueError:
        return False
