"""What is in deploy/ fits the program: settings, exit codes, times, metrics."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from headwater.server.config import Config
from headwater.server.sources import load

from ..server.running import RunningServer

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
SAMPLE = DEPLOY / "headwater.toml"
EDGE = DEPLOY / "headwater-edge.toml"
UNIT = (DEPLOY / "headwater.service").read_text(encoding="utf-8")
RULES = (DEPLOY / "prometheus-rules.yaml").read_text(encoding="utf-8")
COMMANDS = re.findall(
    r"^```sh\n(.*?)^```", (DEPLOY / "README.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)
ROOTLESS = """\
set -e
useradd() { echo "$@"; }
systemctl() { echo "$@"; }
curl() { echo "$@"; }
runuser() {
    [ "$1 $2 $3" = "-u headwater --" ]; shift 3
    case "$*" in
        *" user add "*--token*) "$@" ;;
        *" user add "*) echo long-enough | "$@" --password-stdin ;;  # it would ask, and there is no terminal
        *) "$@" ;;
    esac
}
install() { command install $(echo " $*" | sed 's/ -g headwater//'); }
python3() {  # -m venv DIRECTORY
    mkdir -p "$3/bin"
    printf '#!/bin/sh\\nshift $(($# - 1)); [ -f "$1" ]\\n' > "$3/bin/pip"
    printf '#!%s\\nfrom headwater.server.cli import main\\nmain()\\n' "$PYTHON" > "$3/bin/headwater"
    chmod +x "$3/bin/pip" "$3/bin/headwater"
}
"""
"""What root would do, without users, services and a network."""
COMMENTED = re.compile(r"^#(?=[a-z_]+ = )", re.MULTILINE)


def option(name: str) -> str:
    """The value of an option that the unit has once."""
    [value] = re.findall(rf"^{name}=(.*)$", UNIT, re.MULTILINE)
    return value


def loaded(path: Path) -> Config:
    return load({}, file=path, environment={})


def test_sample_configuration_is_taken_as_it_is() -> None:
    config = loaded(SAMPLE)
    assert (config.data, config.host) == (Path("/var/lib/headwater"), "127.0.0.1")
    assert config.management.keep and config.logs["orders"]["partitions"] == 4


def all_shown(sample: Path, tmp_path: Path) -> Config:
    """The configuration with what a sample only shows."""
    text = re.sub(r'^(host = "127.0.0.1"|hosts = .*)\n', "", sample.read_text(encoding="utf-8"), flags=re.MULTILINE)
    shown = tmp_path / sample.name
    shown.write_text(COMMENTED.sub("", text), encoding="utf-8")
    return loaded(shown)


def test_settings_that_the_sample_only_shows_are_taken_too(tmp_path: Path) -> None:
    config = all_shown(SAMPLE, tmp_path)
    assert len(COMMENTED.findall(SAMPLE.read_text(encoding="utf-8"))) > 10
    assert (config.host, config.cne.node, config.tls.key) == ("0.0.0.0", "worker-0", Path("/etc/headwater/key.pem"))


def test_sample_for_a_node_at_the_edge_is_small(tmp_path: Path) -> None:
    config = loaded(EDGE)
    assert (config.data, config.host, config.http.port) == (loaded(SAMPLE).data, "127.0.0.1", 9043)
    assert not config.flight.enabled and config.management.keep
    assert {name: sorted(settings) for name, settings in config.logs.items()} == {
        "cne": ["retention_bytes", "retention_ms"]
    }
    assert config.cne.log in config.logs
    shown = all_shown(EDGE, tmp_path)
    assert (shown.host, shown.cne.node, shown.cne.delivery_mode) == ("0.0.0.0", "worker-0", "starlingx")


def test_server_starts_with_the_sample_for_a_node_and_takes_notifications(tmp_path: Path) -> None:
    arguments = ("--config", str(EDGE), "--data", str(tmp_path / "data"), "--amqp-port", "0")
    with RunningServer(*arguments, cwd=tmp_path) as server:
        api = "/api/ocloudNotifications/v2"
        body = json.dumps({"ResourceAddress": "/cluster/node/worker-0/sync"}).encode()
        assert server.ask(f"{api}/publishers", body)[0] == 201
        assert sorted(json.loads(server.ask("/logs")[1])["logs"]) == ["$system", "cne"]


def test_unit_serves_the_configuration_where_the_readme_puts_it() -> None:
    assert option("ExecStart") == "/opt/headwater/bin/headwater serve --config /etc/headwater/headwater.toml"
    assert loaded(SAMPLE).data == Path("/var/lib") / option("StateDirectory")


def test_commands_of_the_readme_install_it_and_make_users(tmp_path: Path) -> None:
    for name in ("opt", "etc/systemd/system", "var/lib/headwater"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "headwater-0.whl").touch()
    for name in ("deploy", "constraints.txt"):
        (tmp_path / name).symlink_to(ROOT / name)
    commands = re.sub(r"(?:(?<= )|^)/(?=(?:opt|etc|var)/)", f"{tmp_path}/", "".join(COMMANDS), flags=re.MULTILINE)
    done = subprocess.run(
        ["bash", "-c", ROOTLESS + commands],
        cwd=tmp_path,
        env=os.environ | {"PYTHON": sys.executable, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert 'data = "/var/lib/headwater"' in done.stdout and "enable --now headwater" in done.stdout
    etc = tmp_path / "etc" / "headwater"
    assert (oct(etc.stat().st_mode), oct((etc / SAMPLE.name).stat().st_mode)) == ("0o40750", "0o100640")
    assert (tmp_path / "etc/systemd/system/headwater.service").read_text(encoding="utf-8") == UNIT
    assert "hw_" in done.stdout


def test_unit_waits_longer_than_the_server_takes_to_stop_and_allows_for_all_connections() -> None:
    config = loaded(SAMPLE)
    assert int(option("TimeoutStopSec")) * 1000 > 2 * config.limits.stop_ms
    assert int(option("LimitNOFILE")) > 2 * (config.http.connections_max + config.amqp.connections_max)


def test_unit_goes_on_where_memory_runs_out_and_the_bulk_process_is_ended() -> None:
    assert option("OOMPolicy") == "continue"


def test_unit_does_not_start_again_what_a_restart_does_not_mend() -> None:
    codes = dict(re.findall(r"^\| (\d+) \| (.*?)\. \|$", (ROOT / "docs/reference/cli.md").read_text(), re.MULTILINE))
    told = [codes[code] for code in option("RestartPreventExitStatus").split()]
    assert told == ["Wrong usage, or a wrong configuration", "The storage is damaged"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "headwater.service"
    unit.write_text(UNIT.replace("/opt/headwater/bin/headwater", shutil.which("true") or ""), encoding="utf-8")
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=60)
    assert (done.returncode, [line for line in done.stderr.splitlines() if unit.name in line]) == (0, [])


def test_alerts_ask_for_metrics_and_events_that_exist() -> None:
    metrics = (ROOT / "docs/reference/metrics.md").read_text(encoding="utf-8")
    counters = re.findall(r"^\| `(\w+)` \| counter", metrics, re.MULTILINE)
    histograms = re.findall(r"^\| `(\w+)` \| histogram", metrics, re.MULTILINE)
    known = {*re.findall(r"^\| `(\w+)` \| gauge", metrics, re.MULTILINE), *(f"{name}_total" for name in counters)}
    known |= {f"{name}_{part}" for name in histograms for part in ("bucket", "count", "sum")}
    rules = [rule for group in yaml.safe_load(RULES)["groups"] for rule in group["rules"]]
    asked = set(re.findall(r"\bheadwater_\w+", " ".join(rule["expr"] for rule in rules)))
    assert asked - known == set() and len(rules) > 5

    events = (ROOT / "docs/reference/events.md").read_text(encoding="utf-8")
    for name in re.findall(r"io\.headwater\.[\w.]+", RULES):
        assert f"### `{name}`" in events
