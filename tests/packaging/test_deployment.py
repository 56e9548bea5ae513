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

from headwater.server.config.settings import Config
from headwater.server.config.sources import load
from headwater.server.front.health import LIVE, READY
from headwater.server.users.accounts import hash_password

from ..server.running import RunningServer
from ..server.starting import PROGRAM
from .environments import TOKENS, environment, pip_wheel, run, serving

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
podman() { echo "$@"; }
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
    printf '#!%s\\nfrom headwater.cli.main import main\\nmain()\\n' "$PYTHON" > "$3/bin/headwater"
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
    assert config.management.keep and config.logs["orders"]["partitions"] == 1


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
    with RunningServer(*arguments, cwd=tmp_path, program=PROGRAM) as server:
        api = "/api/ocloudNotifications/v2"
        body = json.dumps({"ResourceAddress": "/cluster/node/worker-0/sync"}).encode()
        assert server.ask(f"{api}/publishers", body)[0] == 201
        assert sorted(json.loads(server.ask("/logs")[1])["logs"]) == ["$system", "cne"]


def test_unit_serves_the_configuration_where_the_readme_puts_it() -> None:
    assert option("ExecStart") == "/opt/headwater/bin/headwater serve --config /etc/headwater/headwater.toml"
    assert option("Type") == "notify"
    assert option("ExecReload") == "kill -HUP $MAINPID"
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
    page = (ROOT / "docs/guides/troubleshooting.md").read_text(encoding="utf-8")
    codes = dict(re.findall(r"^\| (\d+) \| (.*?)\. \|$", page, re.MULTILINE))
    told = [codes[code] for code in option("RestartPreventExitStatus").split()]
    assert told == ["Wrong usage, or a wrong configuration", "The storage is damaged"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "headwater.service"
    unit.write_text(UNIT.replace("/opt/headwater/bin/headwater", shutil.which("true") or ""), encoding="utf-8")
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=60)
    assert (done.returncode, [line for line in done.stderr.splitlines() if unit.name in line]) == (0, [])


def known_metrics() -> set[str]:
    """The names of all series, as Prometheus has them."""
    metrics = (ROOT / "docs/reference/metrics.md").read_text(encoding="utf-8")
    counters = re.findall(r"^- `(\w+)` counter:", metrics, re.MULTILINE)
    histograms = re.findall(r"^- `(\w+)` histogram:", metrics, re.MULTILINE)
    known = {*re.findall(r"^- `(\w+)` gauge:", metrics, re.MULTILINE), *(f"{name}_total" for name in counters)}
    return known | {f"{name}_{part}" for name in histograms for part in ("bucket", "count", "sum")}


ALERTS = {
    "Down", "LogUnavailable", "HomeAway", "NoPrimary", "ReplicaLags", "DiskLow", "DiskFills", "DiskFull", "ClockJumped",
    "BackgroundWorkFails", "AppendsRefused", "ConsumerLags", "GroupLags", "StreamLags", "DiskSlow", "LoginsRefused",
    "ClockWentBack", "LoopHeld", "BulkProcessDown", "WebhookSuspended", "ServerErrors", "FilesRunOut",
}  # fmt: skip
"""Alerts that are there, each as `Headwater...`."""
PANELS = {
    "Events appended per second", "Events retained", "Disk free", "Worst lag of a consumer", "Appended, by log",
    "Read, by log", "Size, by log", "Time of a commit", "Waiting to be written", "Refused appends", "Consumers behind",
    "Consumers behind, in events", "HTTP requests, by status", "HTTP, 99th percentile by route", "AMQP messages",
    "Connections", "Logins and accesses refused", "Event loop late, 99th percentile", "Webhooks", "Logs unavailable",
    "Roles in the home", "Replicas behind their home", "Home: round trip", "Disk used", "Disk reaches its reserve in",
    "Memory of the process", "CPU of the process",
}  # fmt: skip


def test_what_operators_are_told_to_watch_has_alerts_and_panels() -> None:
    rules = {rule["alert"]: rule["expr"] for group in yaml.safe_load(RULES)["groups"] for rule in group["rules"]}
    assert {f"Headwater{name}" for name in ALERTS} - set(rules) == set()
    guide = (ROOT / "docs/guides/operations.md").read_text(encoding="utf-8")
    [table] = re.findall(r"^\| alert on \|.*\n((?:\|.*\n)+)", guide, re.MULTILINE)
    named = set(re.findall(r"`((?:headwater|process)_\w+)", "".join(row.split("|")[1] for row in table.splitlines())))
    assert len(named) > 15
    assert [name for name in sorted(named) if not any(name in expression for expression in rules.values())] == []
    board = json.loads((DEPLOY / "grafana/headwater.json").read_text(encoding="utf-8"))
    assert PANELS - {panel["title"] for panel in board["panels"]} == set()


def summed_twice(expression: str) -> set[str]:
    """Gauges of logs that a `sum` takes directly: the primary and each replica of a home have the same log."""
    metrics = (ROOT / "docs/reference/metrics.md").read_text(encoding="utf-8")
    gauges = set(re.findall(r"^- `(headwater_log_\w+)` gauge:", metrics, re.MULTILINE))
    return gauges & set(re.findall(r"\bsum\s*(?:\b(?:by|without)\s*\([^)]*\)\s*)?\(\s*(\w+)", expression))


def test_no_sum_counts_a_log_once_for_each_server_that_has_it() -> None:
    assert summed_twice('sum by (log) (headwater_log_bytes{log="a"})') == {"headwater_log_bytes"}
    assert summed_twice("1 + sum(headwater_log_events) by (log)") == {"headwater_log_events"}
    assert summed_twice("sum(max by (job, log) (headwater_log_events))") == set()
    board = json.loads((DEPLOY / "grafana/headwater.json").read_text(encoding="utf-8"))
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    asked += [rule["expr"] for group in yaml.safe_load(RULES)["groups"] for rule in group["rules"]]
    assert [expression for expression in asked if summed_twice(expression)] == []


def test_alerts_ask_for_metrics_and_events_that_exist() -> None:
    rules = [rule for group in yaml.safe_load(RULES)["groups"] for rule in group["rules"]]
    asked = set(re.findall(r"\bheadwater_\w+", " ".join(rule["expr"] for rule in rules)))
    assert asked - known_metrics() == set() and len(rules) > 5

    events = (ROOT / "docs/reference/events.md").read_text(encoding="utf-8")
    for name in re.findall(r"io\.headwater\.[\w.]+", RULES):
        assert f"### `{name}`" in events


def test_the_board_asks_for_metrics_that_exist_and_its_panels_fit() -> None:
    board = json.loads((DEPLOY / "grafana/headwater.json").read_text(encoding="utf-8"))
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    asked += [each["definition"] for each in board["templating"]["list"] if "definition" in each]
    assert set(re.findall(r"\bheadwater_\w+", " ".join(asked))) - known_metrics() == set()
    for expression in asked:
        assert [expression.count(opening) for opening in "({["] == [expression.count(closing) for closing in ")}]"]
    places = {
        (x, y)
        for grid in (panel["gridPos"] for panel in board["panels"])
        for x in range(grid["x"], grid["x"] + grid["w"])
        for y in range(grid["y"], grid["y"] + grid["h"])
    }
    area = sum(panel["gridPos"]["w"] * panel["gridPos"]["h"] for panel in board["panels"])
    assert len(places) == area and max(x for x, _ in places) < 24, "panels overlap, or stand beside the board"
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"]) > 10


MANIFESTS = {
    each["kind"]: each for each in yaml.safe_load_all((DEPLOY / "kubernetes/headwater.yaml").read_text("utf-8"))
}
POD = MANIFESTS["StatefulSet"]["spec"]["template"]["spec"]
[CONTAINER] = POD["containers"]


def test_the_pod_serves_its_configuration_where_its_volumes_are(tmp_path: Path) -> None:
    mounted = {each["name"]: each["mountPath"] for each in CONTAINER["volumeMounts"]}
    command, option, file = CONTAINER["args"]
    assert (command, option) == ("serve", "--config") and file.startswith(mounted["configuration"] + "/")
    text = MANIFESTS["Secret"]["stringData"][Path(file).name]
    given = tmp_path / "headwater.toml"
    for number, each in enumerate((text, re.sub(r"^#(?=\[|[a-z_]+ = )", "", text, flags=re.MULTILINE))):
        shown = each.replace("$scrypt$...", hash_password("long enough"))
        given.write_text(shown, encoding="utf-8")
        config = loaded(given)
        assert str(config.data).startswith(mounted["data"] + "/"), "a volume's own top may have lost+found"
        assert POD["terminationGracePeriodSeconds"] * 1000 > 2 * config.limits.stop_ms
        ports = {each["name"]: each["containerPort"] for each in CONTAINER["ports"]}
        assert ports == {"http": config.http.port, "amqp": config.amqp.port, "flight": config.flight.port}
        assert (config.oidc.issuer is not None, config.tracing.endpoint is not None) == (number == 1, number == 1)
        assert len(config.users) == number
    assert {each["name"] for each in POD["volumes"]} | {"data"} == set(mounted)
    assert MANIFESTS["Secret"]["metadata"]["name"] == POD["volumes"][0]["secret"]["secretName"]


def test_probes_ask_for_health_and_the_pod_has_limits_and_no_rights() -> None:
    paths = {name: CONTAINER[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")}
    assert paths == {"startup": LIVE, "liveness": LIVE, "readiness": READY}
    assert {CONTAINER[f"{name}Probe"]["httpGet"]["port"] for name in paths} == {"http"}
    assert CONTAINER["resources"]["limits"]["memory"] and CONTAINER["resources"]["requests"]["cpu"]
    assert POD["securityContext"]["runAsNonRoot"] and not CONTAINER["securityContext"]["allowPrivilegeEscalation"]
    assert CONTAINER["securityContext"]["readOnlyRootFilesystem"]
    assert CONTAINER["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert POD["securityContext"]["runAsUser"] == int(instructions("USER")[0].partition(":")[0])
    assert MANIFESTS["StatefulSet"]["spec"]["replicas"] == 1, "a data directory has one server"
    labels = MANIFESTS["StatefulSet"]["spec"]["template"]["metadata"]["labels"]
    for selector in (
        MANIFESTS["Service"]["spec"]["selector"],
        MANIFESTS["StatefulSet"]["spec"]["selector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items()
    assert MANIFESTS["StatefulSet"]["spec"]["serviceName"] == MANIFESTS["Service"]["metadata"]["name"]
    [claim] = MANIFESTS["StatefulSet"]["spec"]["volumeClaimTemplates"]
    assert claim["metadata"]["name"] == "data" and claim["spec"]["resources"]["requests"]["storage"]


CONTAINERFILE = re.sub(r" *\\\n *", " ", (DEPLOY / "Containerfile").read_text(encoding="utf-8"))


def instructions(name: str) -> list[str]:
    """What follows that instruction, each time."""
    return re.findall(rf"^{name} (.*)$", CONTAINERFILE, re.MULTILINE)


def variables() -> dict[str, str]:
    """What the image has in its environment."""
    return dict(re.findall(r"(\w+)=(\S+)", instructions("ENV")[0]))


def test_the_image_runs_as_a_user_and_serves_where_its_volume_is(tmp_path: Path) -> None:
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", instructions("USER")[0])
    given = {name: value for name, value in variables().items() if name.startswith("HEADWATER_")}
    config = load({}, file=None, environment=given)
    assert config.data.is_relative_to(instructions("VOLUME")[0]) and config.host == "0.0.0.0"
    assert instructions("EXPOSE")[0].split() == [str(each.port) for each in (config.http, config.amqp, config.flight)]
    assert LIVE in instructions("HEALTHCHECK")[0] or LIVE in CONTAINERFILE
    ignored = (ROOT / ".containerignore").read_text(encoding="utf-8")
    assert ignored == (ROOT / ".dockerignore").read_text(encoding="utf-8")
    for source in copied():
        assert (ROOT / source).exists() and f"!{source}\n" in ignored


def copied() -> list[str]:
    """What the builder copies from the checkout."""
    return [source for each in instructions("COPY") if "--from" not in each for source in each.split()[:-1]]


@pytest.mark.timeout(600)
def test_the_steps_of_the_image_make_a_server_that_is_healthy(tmp_path: Path) -> None:
    """The same steps, in an environment instead of an image: of the files that are copied, and of no others."""
    context = tmp_path / "context"
    context.mkdir()
    for source in copied():
        copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
        copy(ROOT / source, context / source)
    [wheel] = (pip_wheel(context, tmp_path / "wheels")).glob("headwater-*.whl")
    assert "/wheels/headwater-*.whl)[oidc,otel,postgres]" in CONTAINERFILE
    programs = environment(tmp_path / "environment", f"{wheel}[oidc,otel,postgres]", context / "constraints.txt")
    check = json.loads(re.search(r"CMD (\[\"python.*\])$", CONTAINERFILE, re.MULTILINE)[1])  # type: ignore[index]
    command = json.loads(instructions("ENTRYPOINT")[0]) + json.loads(instructions("CMD")[-1])
    assert command == ["headwater", "serve"]
    with serving(programs, tmp_path, *TOKENS, "--tracing-endpoint", "http://127.0.0.1:9") as urls:
        code = check[-1].replace("http://127.0.0.1:8080", urls["http"])
        run(programs / check[0], *check[1:-1], code)
