"""The configuration: precedence, origins, and what is said of mistakes."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import click.testing
import pytest

from headwater.amqp.settings import AmqpSettings
from headwater.cli.main import headwater
from headwater.cne.settings import Settings as CneSettings
from headwater.formats.settings.declaration import InvalidConfiguration
from headwater.futoin.settings import Settings as FutoinSettings
from headwater.server.config.effective import render
from headwater.server.config.memory_shares import MemoryShares
from headwater.server.config.settings import SETTINGS, Config, Memory
from headwater.server.config.sources import load
from headwater.server.users.accounts import hash_token

from ..running import SILENCE_S_MAX
from ..running import environment as environment_with
from ..starting import run


@pytest.fixture(autouse=True)
def _in_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def configured(
    toml: str = "", environment: Mapping[str, str] | None = None, logs: Sequence[str] = (), **flags: object
) -> Config:
    if toml:
        Path("headwater.toml").write_text(toml, encoding="utf-8")
    return load(
        {key.replace("__", "."): value for key, value in flags.items()}, logs=logs, environment=environment or {}
    )


def complaint(
    toml: str = "", environment: Mapping[str, str] | None = None, logs: Sequence[str] = (), **flags: object
) -> str:
    with pytest.raises(InvalidConfiguration) as caught:
        configured(toml, environment, logs, **flags)
    return str(caught.value)


@pytest.mark.parametrize(("given", "allowed"), [
    ("10.0.0.1/8", "expected 10.0.0.0/8 (the network) or 10.0.0.1 (one machine), got '10.0.0.1/8'"),
    ("2001:db8::1/32", "expected 2001:db8::/32 (the network) or 2001:db8::1 (one machine), got '2001:db8::1/32'"),
    ("192.0.2.0/99", "expected a network such as 10.0.0.0/8, got '192.0.2.0/99'"),
])  # fmt: skip
def test_a_trusted_network_that_would_never_match_is_refused(given: str, allowed: str) -> None:
    assert complaint(http__trusted_proxies=f"127.0.0.1,{given}") == f"--http-trusted-proxies: {allowed}"


def test_trusted_proxies_are_addresses_networks_and_names() -> None:
    trusted = ("127.0.0.1", "10.0.0.0/8", "10.0.0.1/32", "2001:db8::/32", "192.0.2.0/255.255.255.0", "proxy", "*")
    assert configured(http__trusted_proxies=",".join(trusted)).http.trusted_proxies == trusted


def test_nothing_given_is_a_server_on_loopback_with_one_log() -> None:
    config = configured()
    assert (config.host, config.http.port, config.data) == ("127.0.0.1", 8080, Path("headwater-data"))
    assert config.logs == {"default": {}}
    assert config.origins == {}


def test_environment_wins_over_file_and_flags_win_over_both() -> None:
    toml = "host = '10.0.0.1'\n[http]\nport = 1\nbody_bytes_max = '1MiB'\n"
    config = configured(toml, {"HEADWATER_HTTP_PORT": "2", "HEADWATER_HOST": "10.0.0.2"}, host="10.0.0.3")
    assert (config.http.body_bytes_max, config.http.port, config.host) == (2**20, 2, "10.0.0.3")
    assert config.origins == {
        "http.body_bytes_max": "headwater.toml",
        "http.port": "HEADWATER_HTTP_PORT",
        "host": "--host",
    }


def test_every_setting_has_its_three_names() -> None:
    setting = SETTINGS["limits.disk_reserve_bytes"]
    assert (setting.variable, setting.flag) == ("HEADWATER_LIMITS_DISK_RESERVE_BYTES", "--limits-disk-reserve-bytes")


def test_a_named_file_is_read_and_its_relative_paths_start_beside_it(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    file = tmp_path / "etc" / "server.toml"
    file.write_text("data = 'logs'\n", encoding="utf-8")
    assert load({}, file=file, environment={}).data == tmp_path / "etc" / "logs"
    assert load({}, environment={"HEADWATER_CONFIG": str(file)}).data == tmp_path / "etc" / "logs"


def test_a_named_file_must_be_there() -> None:
    with pytest.raises(InvalidConfiguration, match=r"nowhere.toml: cannot be read: No such file"):
        load({}, file=Path("nowhere.toml"), environment={})


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ("[http]\nprot = 1", "headwater.toml: http.prot: unknown key http.prot; did you mean http.port?"),
        ("hots = 'x'", "headwater.toml: hots: unknown key hots; did you mean host?"),
        ("[htpp]\nport = 1", "headwater.toml: htpp: unknown key htpp"),
        (
            "[logs.a]\npartition = 1",
            "headwater.toml: logs.a.partition: unknown key partition; did you mean",
        ),
        ("[http]\nport = 'x'", "headwater.toml: http.port: expected a whole number from 0 to 65535, got 'x'"),
        ("http = 1", "headwater.toml: http: expected a table"),
        ("host = =", "headwater.toml: is not TOML: Invalid value (at line 1, column 8)"),
        ("[logs.a]\npartitions = 0", "headwater.toml: logs.a.partitions: expected a whole number"),
        ("[logs.a]\npartitions = 5000", "logs.a.partitions: expected a whole number from 1 to 1024, got 5000"),
        ("[logs.a]\npartition_by = 'x'", "logs.a.partition_by: expected"),
        ("[logs.'a b']", "headwater.toml: logs.a b: 'a b' does not match"),
        ("[users.bob]\npassword = 'secret'", "headwater.toml: users.bob.password: expected a hash from"),
        ("[users.bob]\ngrants = ['write:*']", "headwater.toml: users.bob.grants: expected"),
        ("[users.bob]\nkey = 'c2hvcnQ='", "headwater.toml: users.bob.key: expected at least 16 bytes in base64"),
        ("[users.bob]\ntokens = ['x']", "headwater.toml: users.bob.tokens: expected a hash from"),
        ("[users.bob]\npasword = 'x'", "headwater.toml: users.bob.pasword: unknown key; allowed:"),
        ("[tls]\nkey = 'k'", "tls.certificate: not set, but TLS requires both"),
    ],
)
def test_a_mistake_in_the_file_is_named_where_it_stands(toml: str, said: str) -> None:
    assert said in complaint(toml)


def test_every_mistake_is_named_on_a_line_of_its_own() -> None:
    said = complaint(
        """
host = 1
[http]
port = "x"
colour = "blue"
[amqp]
port = 99999
[tls]
key = 5
certificate = "a.pem"
[cne]
webhook_key = "b.pem"
[logs.orders]
partitions = 0
colour = "blue"
[users.me]
grants = "none"
""",
        {"HEADWATER_HTTP_PROT": "1", "HEADWATER_FLIGHT_PORT": "y"},
        logs=["a b", "orders:z"],
        amqp__frame_bytes_max="1",
    )
    assert [line.rpartition(": ")[0] for line in said.splitlines()] == [
        "headwater.toml: host",
        "headwater.toml: http.port",
        "headwater.toml: http.colour",
        "headwater.toml: amqp.port",
        "headwater.toml: tls.key",
        "headwater.toml: logs.orders.partitions",
        "headwater.toml: logs.orders.colour",
        "headwater.toml: users.me.grants",
        "HEADWATER_FLIGHT_PORT",
        "environment",
        "--amqp-frame-bytes-max",
        "--log",
        "--log orders:z",
        "cne.webhook_certificate",
    ]


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "headwater.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidConfiguration, match="is not UTF-8"):
        load({}, environment={})


def test_a_mistake_in_the_environment_names_the_variable() -> None:
    assert complaint(environment={"HEADWATER_HTTP_PORT": "x"}).startswith(
        "HEADWATER_HTTP_PORT: expected a whole number"
    )
    said = complaint(environment={"HEADWATER_HTTP_PROT": "1"})
    assert said == "environment: unknown variable HEADWATER_HTTP_PROT; did you mean HEADWATER_HTTP_PORT?"


def test_variables_of_clients_are_passed_over() -> None:
    of_commands: set[str] = set()
    commands: list[click.Command] = [headwater]
    while commands:
        command = commands.pop()
        if isinstance(command, click.Group):
            context = click.Context(command)
            commands += filter(None, (command.get_command(context, name) for name in command.list_commands(context)))
        of_commands |= {each.envvar for each in command.params if isinstance(each.envvar, str)}
    applications = {"HEADWATER_LOG", "HEADWATER_CREATE_LOG", "HEADWATER_CA_FILE", "HEADWATER_FLIGHT_URL"}
    assert {"HEADWATER_URL", "HEADWATER_AMQP_URL", "HEADWATER_USER"} <= of_commands
    configured(environment={"HOME": "/", **dict.fromkeys(of_commands | applications, "http://127.0.0.1:1")})


def test_the_variable_that_turns_the_extension_off_is_no_setting() -> None:
    assert configured(environment={"HEADWATER_NO_EXTENSIONS": "1"}) == configured(environment={})


def test_variables_that_kubernetes_sets_for_a_service_are_passed_over(tmp_path: Path) -> None:
    forms = {"SERVICE_HOST": "10.0.0.1", "SERVICE_PORT": "80", "SERVICE_PORT_WEB": "80", "PORT": "tcp://10.0.0.1:80"}
    forms |= {"PORT_80_TCP": "tcp://10.0.0.1:80", "PORT_80_TCP_ADDR": "10.0.0.1", "PORT_80_TCP_PORT": "80"}
    forms |= {"PORT_80_TCP_PROTO": "tcp", "PORT_53_UDP": "udp://10.0.0.1:53"}
    services = ("HEADWATER", "HEADWATER_HTTP", "HEADWATER_AMQP", "HEADWATER_EVENT_LOG")
    set_by_kubernetes = {f"{service}_{form}": value for service in services for form, value in forms.items()}
    variables = environment_with(**set_by_kubernetes)
    shown = run(["config"], cwd=tmp_path, env=variables, timeout=SILENCE_S_MAX)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "port = 8080" in shown.stdout
    for name, value in (
        ("HEADWATER_HTTP_PORT", "http://10.0.0.1:80"),
        ("HEADWATER_SERVICE", "10.0.0.1"),
        ("HEADWATER_SERVICE_HOSTS", "10.0.0.1"),
        ("HEADWATER_PORT", "8080"),
        ("HEADWATER_PORT_80", "8080"),
        ("HEADWATER_HOST_TCP", "tcp://10.0.0.1:80"),
    ):
        assert name in complaint(environment={name: value})


def test_a_mistake_in_a_flag_names_the_flag() -> None:
    assert complaint(http__port="70000").startswith("--http-port: expected a whole number from 0 to 65535, got '70000'")
    assert complaint(logs=["orders:many"]).startswith("--log orders:many: expected")
    assert complaint(logs=["no good"]).startswith("--log: 'no good' does not match")


def test_logs_of_all_sources_add_up_setting_by_setting() -> None:
    toml = "[logs.orders]\npartitions = 2\nretention_ms = '7d'\nretention_bytes = '1GiB'\nkeeps_history = false\n"
    config = configured(toml, {"HEADWATER_LOGS": "audit, orders:3"}, ["orders:4", "plain"])
    assert config.logs == {
        "orders": {"partitions": 4, "retention_ms": 604_800_000, "retention_bytes": 2**30, "keeps_history": False},
        "audit": {},
        "plain": {},
    }
    assert config.origins["logs.orders.partitions"] == "--log"
    assert config.origins["logs.orders.retention_ms"] == "headwater.toml"


def test_users_come_from_the_file() -> None:
    config = configured(f"[users.bob]\ntokens = ['{hash_token('t')}']\ngrants = ['read,append:orders-*', 'all:mine']\n")
    bob = config.users["bob"].user
    assert bob.may("append", "orders-1") and not bob.may("manage", "orders-1")  # type: ignore[arg-type]
    assert bob.may("manage", "mine")  # type: ignore[arg-type]


def test_the_effective_configuration_is_toml_with_origins_and_without_secrets() -> None:
    toml = f"[logs.a]\nretention_ms = '2d'\n[users.bob]\ntokens = ['{hash_token('t')}']\ngrants = ['read:*']\n"
    lines = list(render(configured(toml, {"HEADWATER_HTTP_PORT": "0"})))
    text = "\n".join(lines)
    tables = tomllib.loads(text)
    assert tables["http"]["port"] == 0 and tables["limits"]["unindexed_bytes_max"] == "64MiB"
    assert tables["logs"] == {"a": {"retention_ms": "2d"}}
    assert tables["users"] == {"bob": {"grants": ["read:*"], "tokens": "(not shown)"}}
    assert hash_token("t") not in text
    assert any(line.split("#") == [line.split("#")[0], " HEADWATER_HTTP_PORT"] for line in lines)
    assert any("# key is not set" in line for line in lines)
    assert any(line.startswith("host = ") and line.endswith("# default") for line in lines)


def test_aliases_are_shown_as_they_are_given() -> None:
    config = configured("[futoin]\naliases = [' orders:a:b=c=A_B', '*:x=X_']\n")
    assert tomllib.loads("\n".join(render(config)))["futoin"]["aliases"] == ["orders:a:b=c=A_B", "*:x=X_"]
    assert "headwater.toml: futoin.aliases: expected LOGS:TYPE=ALIAS such as" in complaint("[futoin]\naliases = ['x']")


def test_every_section_is_declared_by_the_class_that_the_server_hands_to_its_room() -> None:
    config = configured("[amqp]\ncredit = 7\n[cne]\nhosts = ['*']\n")
    assert config.amqp == AmqpSettings(credit=7)
    assert config.cne == CneSettings(hosts=("*",))
    assert config.futoin == FutoinSettings()


def test_a_removed_setting_is_read_has_no_effect_and_says_what_replaces_it() -> None:
    config = configured("[http]\nbodies_bytes_max = '2GiB'\n")
    assert config.removed == {"http.bodies_bytes_max": "headwater.toml"}
    shown = "# http.bodies_bytes_max (headwater.toml) no longer has an effect: see memory.peers"
    assert shown in list(render(config))
    variable = "HEADWATER_HTTP_BODIES_BYTES_MAX"
    assert configured(environment={variable: "2GiB"}).removed == {"http.bodies_bytes_max": variable}
    assert configured(http__bodies_bytes_max="2GiB").removed == {"http.bodies_bytes_max": "--http-bodies-bytes-max"}
    assert "got 'much'" in complaint(environment={variable: "much"})
    assert "unknown key http.bodies_bytes_min" in complaint("[http]\nbodies_bytes_min = 1\n")


def test_a_removed_setting_is_an_option_that_no_help_shows() -> None:
    runner = click.testing.CliRunner()
    assert "bodies" not in runner.invoke(headwater, ["serve", "--help"]).output
    told = runner.invoke(headwater, ["config", "--http-bodies-bytes-max", "2GiB"])
    assert told.exit_code == 0 and "(--http-bodies-bytes-max) no longer has an effect" in told.output


def test_the_budget_of_memory_is_shown_as_it_is_and_divided_in_one_place() -> None:
    (line,) = [line for line in render(configured()) if line.startswith("peers")]
    assert "default, 1/4 of the available memory" in line and MemoryShares.of(Memory()).peers >= 64 * 2**20
    config = configured("[memory]\npeers = '64MiB'\n")
    assert [line.split("  ")[0] for line in render(config) if line.startswith("peers")] == ['peers = "64MiB"']
    shares = MemoryShares.of(config.memory)
    assert (shares.loop, shares.threads, shares.flight) == (40 * 2**20, 16 * 2**20, 8 * 2**20)
    assert "16MiB to" in complaint("[memory]\npeers = '1MiB'\n")
