"""The settings of proxies and TLS profiles, and which of them a receiver may name."""

from pathlib import Path

import pytest

from actors.configuration.policy import Policy
from angarium.egress_settings import Profiles, ProxySettings, TlsSettings
from angarium.settings import Settings, SettingsError, load

PROXY = ProxySettings(url="http://proxy:3128")
TLS = TlsSettings(authorities="ca.pem")
FILE = """
[proxies.default]
url = "https://proxy.example.net:3129"
user = "angarium"
password_file = "/run/secrets/proxy"
resolve = "there"
tls = "partner"
[tls.partner]
certificate = "client.pem"
key = "client.key"
tenants = ["acme"]
"""


def loaded(tmp_path: Path, text: str) -> Settings:
    (tmp_path / "angarium.toml").write_text(text)
    return load({"config": str(tmp_path / "angarium.toml"), "node": "n"}, {})


def test_profiles_have_tables_in_the_file_and_their_files_are_left_to_nodes(tmp_path: Path) -> None:
    settings = loaded(tmp_path, FILE)
    assert settings.proxies["default"] == ProxySettings(
        url="https://proxy.example.net:3129", user="angarium", password_file="/run/secrets/proxy",
        resolve="there", tls="partner",
    )  # fmt: skip
    assert settings.tls["partner"] == TlsSettings(
        certificate="client.pem", key="client.key", tenants=("acme",)
    )
    assert settings.profiles == Profiles(settings.proxies, settings.tls)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("proxies = 7", r"proxies \(.*: must have a table for each profile, such as \[proxies.partner\]"),
        ("[tls]\nx = 7", r"tls \(.*: must have a table for each profile"),
        ("[proxies.'a.b']\nurl = 'http://p:1'", r"proxies.a.b \(.*: the name of a profile must be 1 to 64"),
        ("[proxies.x]", r"proxies.x.url \(.*: required, but missing"),
        ("[proxies.x]\nurll = ''", r"proxies.x.url.*"),
        ("[proxies.x]\nurl = 'http://p:1'\nresolve = 'no'", r"proxies.x.resolve \(.*: must be"),
        ("[proxies.x]\nurl = 'socks5://p:1080'", r"proxies.x.url \(.*: write it as http://host:port"),
        ("[proxies.x]\nurl = 'http://p'", r"proxies.x.url \(.*: write it as http://host:port"),
        ("[proxies.x]\nurl = 'http://p:1/path'", r"proxies.x.url \(.*: write it as http://host:port"),
        ("[proxies.x]\nurl = 'http://p:1'\nuser = 'u'", r"proxies.x.user \(.*: goes with one of"),
        ("[proxies.x]\nurl = 'http://p:1'\npassword_file = 'f'", r"proxies.x.user \(.*: goes with one of"),
        (
            "[proxies.x]\nurl = 'http://p:1'\nuser = 'u'\npassword_file = 'f'\npassword_variable = 'V'",
            r"proxies.x.user \(.*: goes with one of",
        ),
        (
            "[proxies.x]\nurl = 'http://p:1'\nuser = 'u:v'\npassword_file = 'f'",
            r"proxies.x.user \(.*: must not be empty, nor contain a colon",
        ),
        ("[proxies.x]\nurl = 'https://p:1'\ntls = 'y'", r"proxies.x.tls \(.*: there is no \[tls.y\]"),
        (
            "[proxies.x]\nurl = 'http://p:1'\ntls = 'y'\n[tls.y]\nauthorities = 'f'",
            r"proxies.x.tls \(.*: needs a proxy that uses TLS",
        ),
        ("[tls.x]", r"tls.x \(.*: needs a certificate, or authorities"),
        ("[tls.x]\nkey = 'f'\nauthorities = 'g'", r"tls.x.key \(.*: goes with certificate"),
        (
            "transport = 'httpx'\n[tls.x]\nauthorities = 'f'",
            r"transport \(.*: httpx knows neither proxies nor TLS profiles; use http1",
        ),
    ],
)
def test_a_wrong_profile_is_reported_with_its_member_and_the_remedy(
    tmp_path: Path, text: str, told: str
) -> None:
    with pytest.raises(SettingsError, match=told):
        loaded(tmp_path, text)


def test_a_password_in_the_url_of_a_proxy_is_refused_and_not_repeated(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="without user and password") as caught:
        loaded(tmp_path, "[proxies.x]\nurl = 'http://u:s3cret@p:1'")
    assert "s3cret" not in str(caught.value)


def problems(profiles: Profiles, **members: str | None) -> list[str]:
    policy = Policy(url="https://example.com/", **members)  # type: ignore[arg-type]
    return list(profiles.problems("acme.billing", policy))


def test_a_receiver_may_name_existing_profiles() -> None:
    profiles = Profiles({"eu": PROXY}, {"partner": TLS})
    assert problems(profiles) == problems(Profiles({}, {})) == []
    assert problems(profiles, proxy="eu", tls="partner") == problems(profiles, proxy=None) == []
    assert problems(profiles, proxy="us", tls="ours") == [
        "proxy: nodes have no profile us for the tenant acme; "
        "correct the name, or add [proxies.us] to their settings, for this tenant",
        "tls: nodes have no profile ours for the tenant acme; "
        "correct the name, or add [tls.ours] to their settings, for this tenant",
    ]
    assert len(problems(profiles, tls="eu")) == 1


def test_a_receiver_cannot_bypass_the_default_proxy_unless_that_is_allowed() -> None:
    profiles = Profiles({"default": PROXY}, {})
    assert problems(profiles) == []
    (problem,) = problems(profiles, proxy=None)
    assert problem.startswith("proxy: null (no proxy) is refused")
    assert "allow_direct" in problem
    assert problems(Profiles({"default": PROXY}, {}, allow_direct=True), proxy=None) == []


@pytest.mark.parametrize("named", ["proxy", "tls"])
def test_a_profile_of_other_tenants_reads_like_one_that_does_not_exist(named: str) -> None:
    proxy = ProxySettings(url="http://proxy:3128", tenants=("beta",))
    profiles = Profiles({"eu": proxy}, {"eu": TlsSettings(authorities="ca.pem", tenants=("beta",))})
    assert problems(profiles, **{named: "eu"}) == problems(Profiles({}, {}), **{named: "eu"})
    policy = Policy(url="https://example.com/", **{named: "eu"})  # type: ignore[arg-type]
    assert profiles.problems("beta.billing", policy) == ()
