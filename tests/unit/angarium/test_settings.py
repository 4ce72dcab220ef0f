"""Settings: which source wins; each refusal names the setting, its source and the remedy."""

import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.configuration.policy import Rate
from actors.machine.bucket import RateLimit
from actors.tenant_settings import InstallationAlerts, SettingsByTenant, TenantSettings
from angarium import settings
from angarium.settings import FILE_SETTINGS, TABLES, Settings, SettingsError, load, unknown_variables
from angarium.workers.supervisor_pipe import line_for_worker
from streams.fleet.process_runs import ProcessRuns


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _file(text: str) -> str:
    Path("given.toml").write_text(text)
    return "given.toml"


def test_nothing_given_is_enough() -> None:
    settings = load({}, {})
    assert settings.nats == ("nats://127.0.0.1:4222",)
    assert (settings.prefix, settings.shards, settings.ttl_s, settings.drain_s) == ("angarium", 64, 5.0, 10.0)
    assert not settings.allow_http
    assert settings.rate is None


def test_flags_win_over_variables_and_variables_over_the_file() -> None:
    file = _file('log_format = "json"\nshards = 8\nprefix = "filed"')
    settings = load({"shards": "2", "config": file}, {"ANGARIUM_SHARDS": "4", "ANGARIUM_PREFIX": "told"})
    assert (settings.shards, settings.prefix, settings.log_format) == (2, "told", "json")


def test_a_flag_that_was_not_given_hides_nothing() -> None:
    settings = load({"shards": None, "nats": ()}, {"ANGARIUM_SHARDS": "4", "ANGARIUM_NATS": "nats://a:1"})
    assert (settings.shards, settings.nats) == (4, ("nats://a:1",))


def test_a_command_may_have_other_defaults_of_its_own() -> None:
    assert load({}, {}, {"log_level": "warning"}).log_level == "warning"
    assert load({}, {"ANGARIUM_LOG_LEVEL": "debug"}, {"log_level": "warning"}).log_level == "debug"


def test_the_usual_file_is_read_where_it_is_there() -> None:
    Path("angarium.toml").write_text("shards = 16")
    assert load({}, {}).shards == 16


def test_a_variable_names_the_file() -> None:
    assert load({}, {"ANGARIUM_CONFIG": _file("shards = 3")}).shards == 3


def test_a_flag_separates_values_by_commas_and_may_be_repeated() -> None:
    servers = load({"nats": ("nats://a:1, nats://b:2", "nats://c:3")}, {}).nats
    assert servers == ("nats://a:1", "nats://b:2", "nats://c:3")


def test_a_variable_separates_values_by_commas() -> None:
    settings = load({}, {"ANGARIUM_NATS": "nats://a:1, nats://b:2", "ANGARIUM_ALLOW_NETWORKS": "10.0.0.0/8"})
    assert settings.nats == ("nats://a:1", "nats://b:2")
    assert settings.allow_networks == ("10.0.0.0/8",)


OTHERS = {
    "ANGARIUM_PORT": "tcp://10.0.0.1:4222", "ANGARIUM_SERVICE_HOST": "10.0.0.1",
    "ANGARIUM_SERVICE_PORT": "4222",
    "ANGARIUM_SERVICE_PORT_NATS": "4222", "ANGARIUM_PORT_4222_TCP_ADDR": "10.0.0.1",
    "ANGARIUM_NATS_SERVICE_HOST": "10.0.0.1", "ANGARIUM_NATS_PORT_4222_TCP": "tcp://10.0.0.1:4222",
    "ANGARIUM_NODE_PASSWORD": "hush", "_ANGARIUM_COMPLETE": "bash_source", "ANGARIUMS": "",
    "NATS_URL": "nats://a",
}  # fmt: skip
"""Variables that Kubernetes makes, that permissions.conf names, and of click."""


def test_variables_of_others_are_left_alone() -> None:
    assert load({}, OTHERS).shards == 64
    assert unknown_variables(OTHERS) == []


def test_every_variable_of_ours_is_known() -> None:
    names = {each.name for each in msgspec.structs.fields(Settings)} - TABLES
    ours = {f"ANGARIUM_{name.upper()}": "x" for name in names}
    assert unknown_variables(ours | {"ANGARIUM_CONFIG": "x"}) == []


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("ANGARIUM_SHARD", "ANGARIUM_SHARDS"),
        ("ANGARIUM_ALLOW_NETWORK", "ANGARIUM_ALLOW_NETWORKS"),
        ("ANGARIUM_LOGLEVEL", "ANGARIUM_LOG_LEVEL"),
        ("ANGARIUM_NATS_URL", "ANGARIUM_NATS"),
        ("ANGARIUM__NATS", "ANGARIUM_NATS"),
        ("angarium_nats", "ANGARIUM_NATS"),
        ("ANGARIUN_NATS", "ANGARIUM_NATS"),
        ("ANGARIUM_RATE", "ANGARIUM_DEFAULT_RATE"),
        ("ANGARIUM_CA", "ANGARIUM_TLS_CA"),
        ("ANGARIUM_VERSION", None),
        ("ANGARIUM_", None),
    ],
)
def test_an_unknown_variable_is_reported_with_the_nearest_one(variable: str, meant: str | None) -> None:
    [found] = unknown_variables({variable: "hush"})
    assert (found.name, found.meant) == (variable, meant)
    assert "hush" not in str(found)
    assert f"did you mean {meant}?" in str(found) if meant else "ignored" in str(found)


def test_sizes_and_rates_are_written_as_people_write_them() -> None:
    file = _file('max_body = "1MiB"\nmax_bytes = "20GB"\ndefault_rate = "300/minute"\ndefault_burst = 7')
    settings = load({"config": file}, {})
    assert (settings.max_body, settings.max_bytes) == (1 << 20, 20_000_000_000)
    assert settings.rate == Rate(limit=300, per="minute", burst=7)
    assert load({}, {"ANGARIUM_DEFAULT_RATE": "10/s"}).rate == Rate(limit=10)
    assert load({"default_rate": "300/min", "config": file}, {}).rate == Rate(
        limit=300, per="minute", burst=7
    )


def test_replicas_need_a_longer_lease_and_get_it() -> None:
    assert load({"replicas": 3}, {}).ttl_s == 10
    assert load({"replicas": 3, "ttl_s": 7}, {}).ttl_s == 7


def test_each_process_has_a_name_of_its_own() -> None:
    assert load({}, {}).node != load({}, {}).node


def test_the_repr_shows_nothing() -> None:
    assert "hush" not in repr(load({"nats": ("nats://me:hush@a:1",)}, {}))


@pytest.mark.parametrize(
    ("flags", "variables", "file", "sentence"),
    [
        ({"log_format": "yaml"}, {}, "", "log_format (--log-format): must be json or text, not 'yaml'"),
        ({}, {"ANGARIUM_SHARDS": "0"}, "", "shards (ANGARIUM_SHARDS): must be a whole number from 1 to 1024"),
        ({}, {}, "ttl_s = 1.5", "ttl_s (given.toml): must be a number from 2 to 60, not 1.5"),
        ({}, {"ANGARIUM_ALLOW_HTTP": "ja"}, "", "allow_http (ANGARIUM_ALLOW_HTTP): must be true or false"),
        ({}, {}, "nats = 3", "nats (given.toml): must be a list of strings"),
        ({}, {}, "nats = ['nats://me:hush@a', 3]", "nats (given.toml): must be a list of strings"),
        ({}, {}, "shard = 3", "shard (given.toml): unknown setting; did you mean shards?"),
        ({}, {}, "colour = 3", "colour (given.toml): unknown setting; check the spelling"),
        ({}, {}, "shards = [", "config (given.toml): not valid TOML"),
        ({"max_body": "12q"}, {}, "", "max_body (--max-body): '12q' is not a size; write bytes"),
        (
            {"default_rate": "10/day"},
            {},
            "",
            "default_rate (--default-rate): '10/day' is not a rate; write it as 10/second",
        ),
        ({"default_rate": "0/second"}, {}, "", "give a limit above 0"),
        (
            {"default_rate": "1/second", "default_burst": "2000000"},
            {},
            "",
            "(--default-burst): must be a whole",
        ),
        ({"default_burst": "5"}, {}, "", "default_burst (--default-burst): needs default_rate"),
        (
            {"allow_networks": ("10.1.0.0/8",)},
            {},
            "",
            "allow_networks (--allow-network): 10.1.0.0/8 has host",
        ),
        (
            {},
            {"ANGARIUM_DENY_NETWORKS": "10.0.0.0/8, inside"},
            "",
            "deny_networks (ANGARIUM_DENY_NETWORKS): 'inside' does not",
        ),
        ({"creds": "none.creds"}, {}, "", "creds (--creds): no such file; give the path of one"),
        ({}, {"ANGARIUM_NKEY": "SUAhush"}, "", "nkey (ANGARIUM_NKEY): no such file; give the path of one"),
        ({"creds": "hush" * 1000}, {}, "", "creds (--creds): no such file; give the path of one"),
        ({"replicas": 2}, {}, "", "replicas (--replicas): must be 1, 3 or 5"),
        ({"replicas": 3, "ttl_s": 4}, {}, "", "ttl_s (--ttl-s): must be above 5 with replicas"),
        ({"prefix": "A.b"}, {}, "", "prefix (--prefix): must be a lower-case letter"),
        ({"node": "a b"}, {}, "", "node (--node): must be 1 to 64 of"),
        ({"inbox_prefix": "angarium.x"}, {}, "", "inbox_prefix (--inbox-prefix): must begin with _"),
        ({"answer_inboxes": ("_a", "$KV.x")}, {}, "", "answer_inboxes (--answer-inbox): must begin with _"),
        ({}, {"ANGARIUM_NATS": ","}, "", "nats (ANGARIUM_NATS): is empty"),
        (
            {"nats": ("http://a",)},
            {},
            "",
            "nats (--nats): this is not a list of server addresses; write nats://host:4222",
        ),
        ({"nats": ("nats://:hush@",)}, {}, "", "nats (--nats): this is not a list of server addresses"),
        (
            {"nats": ("nats://a:4222,b nats://c",)},
            {},
            "",
            "nats (--nats): this is not a list of server addresses",
        ),
        ({"nats": ("nats://a:99999",)}, {}, "", "nats (--nats): this is not a list of server addresses"),
        ({"monitor": "9464"}, {}, "", "monitor (--monitor): '9464' is not an address; write it"),
        ({}, {}, "monitor = 9464", "monitor (given.toml): must be a string, not 9464"),
        ({"tls_key": __file__}, {}, "", "tls_cert (default): goes with tls_key"),
    ],
)
def test_refusals(flags: dict[str, Any], variables: dict[str, str], file: str, sentence: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        load({**flags, "config": _file(file)}, variables)
    assert sentence in str(refusal.value)
    assert "hush" not in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("url", ["a", "a:4222", "tls://me:hush@a", "nats://[::1]:4222", "ws://a:80/nats"])
def test_addresses_of_servers(url: str) -> None:
    assert load({"nats": (url,)}, {}).nats == (url,)


@pytest.mark.parametrize(
    "url",
    ["https://hooks.example.com", "https://hooks.example.com:8443/console/", "http://127.0.0.1:8080",
     "http://localhost:8080/console", "https://[2001:db8::1]/"],
)  # fmt: skip
def test_addresses_of_consoles(url: str) -> None:
    assert load({"console_url": url}).console_url == url


@pytest.mark.parametrize(
    "url",
    ["http://hooks.example.com", "hooks.example.com", "https://", "https://a.example/other", "https://a:b/",
     "https://me:hush@a.example", "https://a.example/console?x=1", "https://a.example/#x", "ftp://a.example",
     "https://a.example\\@evil.example", "https://a.example:0", "https://é.example", "https://a .example"],
)  # fmt: skip
def test_a_link_leads_to_no_console_without_tls_or_with_more_in_its_address(url: str) -> None:
    with pytest.raises(SettingsError, match="console_url"):
        load({"console_url": url})


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(SettingsError, match=r"ttl_s .*; shards .*|shards .*; ttl_s .*"):
        load({"shards": "x", "ttl_s": "y"}, {})


def test_a_file_that_was_named_must_be_there() -> None:
    with pytest.raises(SettingsError, match="no such file; correct --config or ANGARIUM_CONFIG"):
        load({"config": "none.toml"}, {})


TENANTS = """
[tenants.acme]
weight = 4
rate = "500/second"
backlog_max_bytes = "2GiB"
attempts_max = 7
[tenants."*"]
rate = {limit = 10, per = "minute", burst = 5}
dead_letters_max_bytes = "1GiB"
"""


def test_tenants_have_tables_in_the_file() -> None:
    tenant_settings = SettingsByTenant(load({"config": _file(TENANTS)}, {}).tenants)
    acme = TenantSettings(weight=4, rate=Rate(limit=500), backlog_max_bytes=2 << 30, attempts_max=7)
    assert (tenant_settings.attempts_max("acme"), tenant_settings.attempts_max("other")) == (7, None)
    assert tenant_settings.has_budgets
    assert not SettingsByTenant().has_budgets
    assert tenant_settings.for_tenant("acme") == acme
    assert tenant_settings.limit("other") == RateLimit(10 / 60, 5)
    assert (tenant_settings.weight("acme"), tenant_settings.weight("other")) == (4, 1)
    assert tenant_settings.with_quota == ["acme"]
    assert tenant_settings.for_all_others.dead_letters_max_bytes == 1 << 30
    assert tenant_settings.for_tenant("acme").dead_letters_max_bytes is None
    assert tenant_settings.for_tenant("other").dead_letters_max_bytes == 1 << 30
    assert SettingsByTenant().limit("acme") is None


def test_alerts_have_a_table_in_the_file_and_in_that_of_a_tenant() -> None:
    settings = load(
        {"config": _file("[alerts]\ninterval_s = 9\n[tenants.acme.alerts]\nbehind_percent = 5")}, {}
    )
    assert settings.alerts == InstallationAlerts(interval_s=9)
    assert settings.tenants["acme"].alerts == InstallationAlerts(behind_percent=5)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("tenants = 7", "tenants .*: must have a table for each tenant"),
        ("[tenants]\nacme = 7", "tenants .*: must have a table for each tenant"),
        ("[tenants.'a.b']", r"tenants.a.b .*: .*; or write \* for all tenants without a table"),
        ("[tenants.acme]\nwieght = 2", "tenants.acme.wieght .*: unknown member; did you mean weight"),
        ("[tenants.acme]\nweight = 0", "tenants.acme.weight .*: must be a whole number from 1 to 100"),
        ("[tenants.acme]\nrate = 'fast'", "tenants.acme .*: 'fast' is not a rate; write it as"),
        ("[tenants.acme]\nbacklog_max_bytes = 'much'", "tenants.acme .*: 'much' is not a size"),
        ("[tenants.acme]\nbacklog_max_bytes = 7", "tenants.acme.backlog_max_bytes .*: must be"),
        ("[tenants.acme.alerts]\ninterval_s = 0", "tenants.acme.alerts.interval_s .*: must be"),
        ("[alerts]\nbehind_percent = 101", "alerts.behind_percent .*: must be"),
        ("[alerts]\nfailing_s = 5", "alerts.failing_s .*: unknown member"),
        ("alerts = 7", "alerts .*: must be"),
    ],
)
def test_a_wrong_table_is_reported_with_its_member(given: str, told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        load({"config": _file(given)}, {})


def test_a_flag_sets_no_table() -> None:
    assert load({"tls": "partner"}, {}).tls == {}


def test_a_variable_sets_no_table() -> None:
    assert load({}, {"ANGARIUM_TENANTS": "acme"}).tenants == {}
    assert [each.name for each in unknown_variables({"ANGARIUM_TENANTS": "acme"})] == ["ANGARIUM_TENANTS"]


@pytest.mark.parametrize("workers", ["0", "65", "two", "auto", "1.5", ""])
def test_the_number_of_workers_has_bounds(workers: str) -> None:
    with pytest.raises(SettingsError, match=r"workers \(--workers\): must be a whole number from 1 to 64"):
        load({"workers": workers}, {})
    assert load({}, {"ANGARIUM_WORKERS": "64"}).workers == 64


def test_workers_beyond_the_shards_and_names_that_grow_too_long_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"workers \(--workers\): must be at most 4, as shards"):
        load({"workers": "5", "shards": "4"}, {})
    assert load({"workers": "9", "node": "n" * 62}, {}).node == "n" * 62
    with pytest.raises(SettingsError, match=r"node \(--node\): is too long: workers add their numbers"):
        load({"workers": "10", "node": "n" * 62}, {})


def test_a_worker_is_told_each_setting() -> None:
    tenants = {"*": TenantSettings(weight=2), "acme": TenantSettings(rate=Rate(limit=500), weight=4)}
    given = Settings(
        node="n-1", nats=("nats://a:1", "nats://b:2"), workers=3, allow_networks=("10.0.0.0/8",),
        default_rate="10/second", tenants=tenants,
    )  # fmt: skip
    runs = ProcessRuns("run", ended=("before",))
    line = line_for_worker(given, runs)
    assert msgspec.json.decode(line, type=tuple[Settings, ProcessRuns]) == (given, runs)


def test_every_setting_says_what_it_is() -> None:
    for each in msgspec.structs.fields(Settings):
        assert any(meta.description for meta in each.type.__metadata__), each.name


def test_the_commented_file_names_every_setting_with_its_default() -> None:
    text = (Path(__file__).parents[3] / "deploy" / "angarium.toml").read_text()
    shown = tomllib.loads("\n".join(re.findall(r"^#(\w+ = .*)$", text, re.MULTILINE)))
    fields = {each.name: each for each in msgspec.structs.fields(Settings)}
    assert shown.keys() == fields.keys()
    settings = load({"config": _file(text.replace("\n#allow_http =", "\nallow_http ="))}, {})
    for name in shown.keys() - {"node", *FILE_SETTINGS}:
        default = getattr(Settings(), name)
        if default is not None:
            assert getattr(load({name: shown[name]}, {}), name) == default == getattr(settings, name), name


@pytest.mark.parametrize("prefix", ["_INBOX", "_INBOX_inspector", "_ops.in", "_a-1"])
def test_an_inbox_may_begin_with_these(prefix: str) -> None:
    given = {"inbox_prefix": prefix, "answer_inboxes": (prefix,)}
    assert load(given, {}).inbox_prefix == prefix


@pytest.mark.parametrize(
    "prefix",
    [
        "", "angarium", "angarium.journal", "$JS.API", "$KV", "$SRV", "INBOX", "_INBOX.", "_INBOX.*", "_>",
        "_",
        "_a b", "_a..b", "_R_", "_R_.x", "_GR_", "_INBOX.x\n",
    ],
)  # fmt: skip
def test_an_inbox_may_not_begin_with_these(prefix: str) -> None:
    for given in ({"inbox_prefix": prefix}, {"answer_inboxes": (prefix,)}):
        with pytest.raises(SettingsError, match="must begin with _"):
            load(given, {})


@pytest.mark.parametrize("origin", ["", "a b", "-a", "a..b", "a.example\r\nx: y", "a" * 254, "a_b"])
def test_an_origin_is_a_name_as_in_dns(origin: str) -> None:
    with pytest.raises(SettingsError, match="must be a name as in DNS"):
        load({"origin": origin}, {})
    assert load({"origin": "events.example.com"}, {}).origin == "events.example.com"


def test_a_transport_that_is_not_installed_is_reported_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(settings, "find_spec", lambda _: None)
    with pytest.raises(
        SettingsError, match=r"transport \(--transport\): httpx is not installed; install the extra"
    ):
        load({"transport": "httpx"}, {})
    assert load({}, {}).transport == "http1"
