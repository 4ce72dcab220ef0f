"""The paths of a node: what profiles stand for, and files that cannot be used at the start."""

from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from actors.configuration.policy import Policy
from angarium.delivery.connections.guard import Guard
from angarium.delivery.egress.paths import EgressPaths
from angarium.delivery.http_exchange.transport import NO_PROFILES, ProfileNames
from angarium.egress_settings import Profiles, ProxySettings, TlsSettings
from angarium.file_value import FileValue, UnusableSetting

URL = "https://example.com/"
PROXY = ProxySettings(url="http://proxy.example:3128")


def policy(**members: str | None) -> Policy:
    return Policy(url=URL, **members)  # type: ignore[arg-type]


def test_the_default_proxy_is_used_if_there_is_one() -> None:
    without = EgressPaths(Guard(), Profiles({"eu": PROXY}, {}))
    assert without.profiles_of(policy()) is NO_PROFILES
    with_default = EgressPaths(Guard(), Profiles({"default": PROXY, "eu": PROXY}, {}))
    assert with_default.profiles_of(policy()) == ProfileNames("default")
    assert with_default.profiles_of(policy(proxy="eu")) == ProfileNames("eu")
    assert with_default.profiles_of(policy(proxy=None)) is NO_PROFILES


def test_each_pair_of_profiles_is_one_way_with_a_key_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes(trustme.CA().cert_pem.bytes())
    tls = {"partner": TlsSettings(authorities=str(tmp_path / "ca.pem"))}
    paths = EgressPaths(Guard(), Profiles({"eu": PROXY, "partner": PROXY}, tls))
    names = [
        ProfileNames("eu"),
        ProfileNames("partner"),
        ProfileNames(tls="partner"),
        ProfileNames("eu", "partner"),
    ]
    assert len({paths.direct.key, *(paths.path_for(each).key for each in names)}) == 1 + len(names)
    assert paths.path_for(ProfileNames("eu")) is paths.path_for(ProfileNames("eu"))
    assert paths.path_for(ProfileNames("eu")).tls is paths.direct.tls
    assert (
        paths.path_for(ProfileNames("eu", "partner")).tls is paths.path_for(ProfileNames(tls="partner")).tls
    )


def test_a_proxy_that_resolves_has_a_guard_of_its_own() -> None:
    there = ProxySettings(url="http://proxy.example:3128", resolve="there")
    paths = EgressPaths(Guard(), Profiles({"eu": PROXY, "there": there}, {}))
    assert paths.path_for(ProfileNames("eu")).guard is paths.direct.guard
    assert paths.path_for(ProfileNames("there")).guard is not paths.direct.guard


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, ": No such file"),
        (b"", "tls.partner: "),
        (b"-----BEGIN CERTIFICATE-----\nx\n", "tls.partner: "),
    ],
)
def test_a_file_that_cannot_be_used_is_named_at_the_start_by_its_setting(
    tmp_path: Path, content: bytes | None, why: str
) -> None:
    file = tmp_path / "s3cret.pem"
    if content is not None:
        file.write_bytes(content)
    path = str(file)
    for member, profile in (
        ("certificate", TlsSettings(certificate=path)),
        ("authorities", TlsSettings(authorities=path)),
    ):
        with pytest.raises(UnusableSetting, match=r"tls\.partner: .*; correct the setting") as caught:
            EgressPaths(Guard(), Profiles({}, {"partner": profile}))
        assert (f"{member}{why}" if content is None else why) in str(caught.value)
        assert "s3cret" not in str(caught.value)


def test_a_key_of_another_certificate_is_named(tmp_path: Path) -> None:
    one, other = (trustme.CA().issue_cert("client.example") for _ in range(2))
    (tmp_path / "c.pem").write_bytes(one.cert_chain_pems[0].bytes())
    (tmp_path / "k.pem").write_bytes(other.private_key_pem.bytes())
    settings = TlsSettings(certificate=str(tmp_path / "c.pem"), key=str(tmp_path / "k.pem"))
    with pytest.raises(UnusableSetting, match="the key does not belong to the certificate"):
        EgressPaths(Guard(), Profiles({}, {"partner": settings}))


def test_a_key_with_a_password_is_refused_without_asking_for_it(tmp_path: Path) -> None:
    issued = trustme.CA().issue_cert("client.example")
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    sealed = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"pass"))
    (tmp_path / "client.pem").write_bytes(issued.cert_chain_pems[0].bytes() + sealed)
    with pytest.raises(UnusableSetting, match=r"tls\.partner: "):
        EgressPaths(Guard(), Profiles({}, {"partner": TlsSettings(certificate=str(tmp_path / "client.pem"))}))


def test_a_proxys_password_is_read_from_its_variable() -> None:
    proxy = ProxySettings(url="http://proxy.example:3128", user="u", password_variable="PROXY_PASSWORD")
    profiles = Profiles({"eu": proxy}, {})
    assert (
        EgressPaths(Guard(), profiles, variables={"PROXY_PASSWORD": "s3cret"})
        .path_for(ProfileNames("eu"))
        .proxy
    )
    with pytest.raises(UnusableSetting, match=r"proxies.eu.password_variable: there is no password; correct"):
        EgressPaths(Guard(), profiles, variables={})


def test_the_repr_of_a_proxys_settings_shows_nothing() -> None:
    assert repr(PROXY) == "ProxySettings(…)"


def test_a_value_is_read_again_when_a_file_changes_and_only_then(tmp_path: Path) -> None:
    file = tmp_path / "value"
    file.write_text("one")
    value = FileValue("setting", {"file": str(file)}, file.read_text)
    assert (value.refresh(), value.value, value.version) == (False, "one", 0)
    file.write_text("other")
    assert (value.refresh(), value.value, value.version) == (True, "other", 1)
    file.unlink()
    assert (value.refresh(), value.value, value.version) == (False, "other", 1)
    file.write_text("other")
    assert (value.refresh(), value.version) == (True, 2)
