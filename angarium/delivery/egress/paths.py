"""The paths to receivers: what the names of profiles stand for on this node.

A path holds what a connection needs: the guard that judges the target, the TLS context, and the proxy. It is
made once for each pair of profiles, and again when one of their files changes. Each attempt looks its path
up, except the direct one.
"""

import base64
import ssl
from collections.abc import Mapping
from ipaddress import ip_network
from os import environ

from msgspec import Struct

from actors.configuration.policy import DEFAULT_PROXY, Policy
from angarium.delivery.connections.connect import default_tls
from angarium.delivery.connections.guard import Guard, SpellingGuard
from angarium.delivery.connections.pool import DIRECT, PathKey
from angarium.delivery.connections.resolver import Resolver
from angarium.delivery.egress.proxy import Proxy
from angarium.delivery.http_exchange.target import InvalidTarget, parse_target
from angarium.delivery.http_exchange.transport import NO_PROFILES, ProfileNames
from angarium.egress_settings import Profiles, ProxySettings, TlsSettings
from angarium.file_value import FileValue, UnusableSetting, reload_when_changed

PASSWORD_LENGTH_MAX = 4096

_ANYWHERE = tuple(map(ip_network, ("0.0.0.0/0", "::/0")))


class EgressPath(Struct, frozen=True):
    """A path to receivers. `key` distinguishes its connections from those of all other paths.

    Without a proxy, the judged address is connected to.
    """

    key: PathKey
    guard: Guard | SpellingGuard
    tls: ssl.SSLContext
    proxy: Proxy | None = None


class EgressPaths:
    """All paths of a node. Raises UnusableSetting.

    `resolver` resolves the names of proxies: the guard against other networks does not apply to them, since
    they are the operator's. `tls` is the context for receivers without a TLS profile.
    """

    def __init__(
        self,
        guard: Guard,
        profiles: Profiles | None = None,
        *,
        resolver: Resolver | None = None,
        tls: ssl.SSLContext | None = None,
        variables: Mapping[str, str] = environ,
    ) -> None:
        profiles = profiles or Profiles({}, {})
        self.direct = EgressPath(DIRECT, guard, tls or default_tls())
        self._spelling = SpellingGuard(guard)
        self._contexts = {name: _context(f"tls.{name}", each) for name, each in profiles.tls.items()}
        anywhere = Guard(allow_http=True, allow_networks=_ANYWHERE, resolver=resolver)
        self._resolve = {name: each.resolve for name, each in profiles.proxies.items()}
        self._passwords = {
            name: _authorization(name, each, variables) for name, each in profiles.proxies.items()
        }
        usual = FileValue("tls", {}, lambda: self.direct.tls)
        self._proxies = {
            name: _proxy(
                name, each, anywhere, self._passwords[name], self._contexts.get(each.tls or "", usual)
            )
            for name, each in profiles.proxies.items()
        }
        self._paths: dict[ProfileNames, EgressPath] = {}

    @property
    def proxies(self) -> tuple[str, ...]:
        """The names of all proxies."""
        return tuple(self._proxies)

    def profiles_of(self, policy: Policy) -> ProfileNames:
        """The profiles of a receiver; they exist (`Profiles.problems`)."""
        proxy = policy.proxy
        if proxy == DEFAULT_PROXY and proxy not in self._proxies:
            proxy = None
        return NO_PROFILES if proxy is None and policy.tls is None else ProfileNames(proxy, policy.tls)

    def path_for(self, profiles: ProfileNames) -> EgressPath:
        """The path that the profiles stand for, other than the direct one."""
        return self._paths.get(profiles) or self._paths.setdefault(profiles, self._make(profiles))

    async def reload_changed_files(self) -> None:
        """Read files again when they change, until cancelled; new connections then use what they hold.

        Older connections get no further request, nor do tunnels that were opened with an older password.
        """
        watched: list[FileValue[ssl.SSLContext] | FileValue[bytes]] = [
            *self._contexts.values(), *self._passwords.values()
        ]  # fmt: skip
        await reload_when_changed(watched, self._paths.clear)

    def _make(self, profiles: ProfileNames) -> EgressPath:
        tls = None if profiles.tls is None else self._contexts[profiles.tls]
        proxy = None if profiles.proxy is None else self._proxies[profiles.proxy]
        return EgressPath(
            key=PathKey(
                proxy=profiles.proxy, proxy_version=proxy.version if proxy else 0,
                tls=profiles.tls, tls_version=tls.version if tls else 0,
            ),
            guard=self._spelling if self._resolve.get(profiles.proxy or "") == "there" else self.direct.guard,
            tls=tls.value if tls else self.direct.tls,
            proxy=proxy,
        )  # fmt: skip


def _context(name: str, profile: TlsSettings) -> FileValue[ssl.SSLContext]:
    def read() -> ssl.SSLContext:
        context = default_tls()
        if profile.authorities is not None:
            context.load_verify_locations(cafile=profile.authorities)
        if profile.certificate is not None:
            # Without a password OpenSSL would ask for one at the terminal.
            context.load_cert_chain(profile.certificate, profile.key, password="")
        return context

    members = ("certificate", profile.certificate), ("key", profile.key), ("authorities", profile.authorities)
    return FileValue(name, {member: file for member, file in members if file is not None}, read)


def _authorization(name: str, proxy: ProxySettings, variables: Mapping[str, str]) -> FileValue[bytes]:
    """The value of `proxy-authorization`; empty without user and password."""

    def read() -> bytes:
        if proxy.user is None:
            return b""
        if proxy.password_file is not None:
            with open(proxy.password_file, encoding="utf-8") as file:
                password = file.read(PASSWORD_LENGTH_MAX).rstrip("\r\n")
        else:
            password = variables.get(proxy.password_variable or "", "")
        if not password:
            raise ValueError("there is no password")
        return b"Basic " + base64.b64encode(f"{proxy.user}:{password}".encode())

    member = "password_variable" if proxy.password_file is None else "password_file"
    files = {} if proxy.password_file is None else {"password_file": proxy.password_file}
    return FileValue(f"proxies.{name}" if files else f"proxies.{name}.{member}", files, read)


def _proxy(
    name: str,
    settings: ProxySettings,
    anywhere: Guard,
    password: FileValue[bytes],
    tls: FileValue[ssl.SSLContext],
) -> Proxy:
    try:
        target = parse_target(settings.url)
    except InvalidTarget as error:
        raise UnusableSetting(f"proxies.{name}.{error}") from None
    return Proxy(name, target, anywhere, password, tls)
