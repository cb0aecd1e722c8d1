#!/usr/bin/env python3
"""Draws the dashboard from a run of the real programs: docs/pictures/dashboard.png.

    make build wasm envoy && scripts/picture-dashboard.py

Starts the control plane, a service and Envoy with envoy-config/envoy.yaml, sends requests for four minutes, and lets a
real Prometheus scrape and evaluate the rules. Then it asks Prometheus the queries of the dashboard's first rows, and draws
them as Grafana would lay them out, with chromium. It needs the ports of envoy.yaml: 7070, 7071, 8080, 9000 and 9901.
"""

import http.client
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from contextlib import ExitStack
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONFIG = ROOT / "envoy-config"
DASHBOARD = CONFIG / "observability/grafana/dashboards/credence.json"
PICTURE = ROOT / "docs/pictures/dashboard.png"
CREDENCE = os.environ.get("CREDENCE_BIN", str(ROOT / "target/release/credence"))
ISSUER = "https://id.example.com"
PROMETHEUS = "127.0.0.1:9095"

TRAFFIC_SECONDS = 240
SCRAPE_SECONDS = 5
# A principal's authority is revoked this often; the agents notice it after a few requests.
REVOKE_EVERY_SECONDS = 20
STEP_SECONDS = 5
# Grafana's $__rate_interval: four scrapes.
VARIABLES = {"$__rate_interval": f"{4 * SCRAPE_SECONDS}s", "$job": ".*", "$envoy": ".*", "$control_plane": ".*"}

# Rows of the dashboard's grid below this one are left out.
GRID_ROWS = 62
WIDTH, ROW_HEIGHT, GAP = 1400, 26, 8
COLORS = ("#3274d9", "#e0752d", "#2f9e44", "#c4162a", "#8f3bb8", "#b7950b", "#0b7285", "#7f7f7f")


def main() -> None:
    chromium = shutil.which("chromium") or sys.exit("error: chromium is not installed:  apt-get install chromium")
    prometheus = subprocess.run([ROOT / "scripts/setup-prometheus.sh"], check=True, stdout=subprocess.PIPE, text=True)
    program = Path(prometheus.stdout.strip()) / "prometheus"
    if not program.exists():
        sys.exit("error: only promtool could be built; the picture needs Debian's package prometheus")
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="credence-picture-")))
        start_system(stack, scratch)
        start_prometheus(stack, scratch, program)
        began = time.time()
        send_traffic(scratch, began + TRAFFIC_SECONDS)
        page = scratch / "dashboard.html"
        height = draw(page, began, time.time())
        PICTURE.parent.mkdir(exist_ok=True)
        subprocess.run(
            [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--screenshot={PICTURE}"]
            + [f"--window-size={WIDTH},{height}", page.as_uri()],
            check=True,
            stderr=subprocess.DEVNULL,
        )
    print(PICTURE)


# === The system and its traffic ===


def start_system(stack: ExitStack, scratch: Path) -> None:
    control_plane = ["serve", "--init", "--fresh", "--data", "data", "--operator-token-file", "operator.token"]
    start(stack, scratch, "control-plane", [CREDENCE, *control_plane])
    wait_for("http://127.0.0.1:7070/readyz")
    (scratch / "service/v1/catalog").mkdir(parents=True)
    for name in ("healthz", "v1/catalog/shoes"):
        (scratch / "service" / name).write_text("shoes\n")
    service = ["-m", "http.server", "--bind", "127.0.0.1", "--directory", "service", "9000"]
    start(stack, scratch, "service", [sys.executable, *service])
    issuer = credence(scratch, "keygen", "--out", "issuer.jwk")
    (scratch / "agent.pub").write_text(credence(scratch, "keygen", "--out", "agent.jwk"))
    log_id = json.loads(urllib.request.urlopen("http://127.0.0.1:7070/v1/log").read())["log_id"]
    settings = (CONFIG / "envoy.yaml").read_text()
    for found, value in (("log_id: ", log_id), ("jwk: ", issuer.strip())):
        line = next(line for line in settings.splitlines() if found in line)
        settings = settings.replace(line, line[: line.index(found) + len(found)] + value)
    settings = settings.replace("filename: build/", f"filename: {ROOT}/build/")
    (scratch / "envoy.yaml").write_text(settings)
    start(stack, scratch, "envoy", [os.environ["CREDENCE_ENVOY"], "-c", "envoy.yaml", "--concurrency", "2"])
    wait_for("http://127.0.0.1:8080/healthz")


def start_prometheus(stack: ExitStack, scratch: Path, program: Path) -> None:
    settings = (CONFIG / "observability/prometheus.yml").read_text()
    settings = settings.replace("15s", f"{SCRAPE_SECONDS}s").replace("scrape_timeout: 10s", f"scrape_timeout: {SCRAPE_SECONDS}s")
    (scratch / "prometheus.yml").write_text(settings)
    shutil.copytree(CONFIG / "observability/rules", scratch / "rules")
    options = ["--config.file=prometheus.yml", "--storage.tsdb.path=metrics", f"--web.listen-address={PROMETHEUS}"]
    start(stack, scratch, "prometheus", [program, *options])
    wait_for(f"http://{PROMETHEUS}/-/ready")


def start(stack: ExitStack, scratch: Path, name: str, command: list) -> None:
    log = stack.enter_context(open(scratch / f"{name}.log", "w"))
    process = subprocess.Popen(command, cwd=scratch, stdout=log, stderr=log)
    stack.callback(process.wait)
    stack.callback(process.terminate)


def wait_for(url: str) -> None:
    for _ in range(300):
        try:
            urllib.request.urlopen(url, timeout=2)
            return
        except OSError:
            time.sleep(0.1)
    sys.exit(f"error: {url} does not answer")


def credence(scratch: Path, *arguments: str) -> str:
    environment = os.environ | {"CREDENCE_TOKEN_FILE": "operator.token"}
    done = subprocess.run([CREDENCE, *arguments], cwd=scratch, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def send_traffic(scratch: Path, until: float) -> None:
    """About 150 requests a second: most are allowed; some name another item, carry no delegation, or are revoked."""
    connection = http.client.HTTPConnection("127.0.0.1", 8080)
    number, subject, chain, revoke_at = 0, "", "", 0.0
    while time.time() < until:
        if time.time() >= revoke_at:
            if subject:
                credence(scratch, "revoke", "principal", "--issuer", ISSUER, "--subject", subject)
                for _ in range(60):
                    get(connection, "/v1/catalog/shoes", chain)
            subject = f"person-{number}"
            chain = mint(scratch, subject)
            revoke_at = time.time() + REVOKE_EVERY_SECONDS
        number += 1
        # The share of other items goes up and down.
        is_other = number % 25 < 2 + 2 * math.sin(number / 2500)
        get(connection, "/v1/catalog/hats" if is_other else "/v1/catalog/shoes", "" if number % 40 == 0 else chain)
        if number % 200 == 0:
            chain = mint(scratch, subject)
        time.sleep(0.005)


def mint(scratch: Path, subject: str) -> str:
    tool = 'catalog.read={"item":{"constraint_type":"exact","value":"shoes"}}'
    who = ["--issuer", ISSUER, "--subject", subject, "--epoch", "0", "--holder", "agent.pub"]
    return credence(scratch, "mint", "--key", "issuer.jwk", *who, "--audience", "https://payments.example", "--tool", tool).strip()


def get(connection: http.client.HTTPConnection, path: str, chain: str) -> None:
    connection.request("GET", path, headers={"delegation": chain} if chain else {})
    connection.getresponse().read()


# === The picture ===


def draw(page: Path, began: float, ended: float) -> int:
    panels = [panel for panel in json.loads(DASHBOARD.read_text())["panels"] if panel["gridPos"]["y"] < GRID_ROWS]
    parts = [draw_panel(panel, began, ended) for panel in panels]
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels) * ROW_HEIGHT + GAP
    page.write_text(
        "<!doctype html><meta charset=utf-8><style>body{margin:0;background:#f4f5f5;font:12px sans-serif;color:#24292e}"
        ".p{position:absolute;background:#fff;border:1px solid #dcdcdc;box-sizing:border-box;padding:5px 8px;overflow:hidden}"
        ".row{position:absolute;font-weight:bold;padding:6px 4px}.t{font-weight:bold}.big{font-size:30px;text-align:center;"
        "margin-top:14px;color:#1a7f37}.l{font-size:10px;line-height:13px;margin-top:1px}text{font-size:9px;fill:#555}</style>"
        + "".join(parts)
    )
    return height


def draw_panel(panel: dict, began: float, ended: float) -> str:
    grid, unit = panel["gridPos"], panel.get("fieldConfig", {}).get("defaults", {}).get("unit", "short")
    width, height = grid["w"] * WIDTH // 24 - GAP, grid["h"] * ROW_HEIGHT - GAP
    place = f"left:{grid['x'] * WIDTH // 24 + GAP // 2}px;top:{grid['y'] * ROW_HEIGHT + GAP // 2}px;width:{width}px;height:{height}px"
    if panel["type"] == "row":
        return f'<div class=row style="{place}">{escape(panel["title"])}</div>'
    series = [line for target in panel["targets"] for line in lines_of(target, began, ended)]
    if panel["type"] == "stat":
        last = [points[-1][1] for _, points in series if points]
        inside = f"<div class=big>{shown(last[0], unit) if last else 'No data'}</div>"
    elif panel["type"] == "table":
        firing = sorted({name for name, points in series if points and points[-1][0] > ended - 2 * STEP_SECONDS})
        inside = "<div class=l>" + ("<br>".join(map(escape, firing)) or "No alert is firing.") + "</div>"
    elif panel["type"] == "heatmap":
        inside = heatmap(series, width - 18, height - 34, began, ended)
    else:
        inside = chart(series, unit, width - 18, height - 34, began, ended)
    return f'<div class=p style="{place}"><div class=t>{escape(panel["title"])}</div>{inside}</div>'


def lines_of(target: dict, began: float, ended: float) -> list[tuple[str, list[tuple[float, float]]]]:
    expression = target["expr"]
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    asked = urllib.parse.urlencode({"query": expression, "start": began, "end": ended, "step": STEP_SECONDS})
    answer = json.loads(urllib.request.urlopen(f"http://{PROMETHEUS}/api/v1/query_range?{asked}").read())
    return [
        (name_of(target.get("legendFormat", ""), result["metric"]), readable(result["values"]))
        for result in answer["data"]["result"]
    ]


def name_of(legend: str, labels: dict) -> str:
    if legend in ("", "__auto"):
        return labels.get("alertname", "value")
    for label, value in labels.items():
        legend = legend.replace("{{" + label + "}}", value)
    return legend


def readable(values: list) -> list[tuple[float, float]]:
    points = [(float(at), float(value)) for at, value in values]
    return [(at, value) for at, value in points if math.isfinite(value)]


def chart(series: list, unit: str, width: int, height: int, began: float, ended: float) -> str:
    series = sorted((line for line in series if line[1]), key=lambda line: -max(value for _, value in line[1]))
    if not series:
        return "<div class=l>No data</div>"
    shown_series = series[: len(COLORS)]
    height -= 13 * (1 + len(shown_series) // 4) + 14
    top = max(value for _, points in series for _, value in points) * 1.1 or 1

    def at(moment: float, value: float) -> str:
        return f"{46 + (moment - began) / (ended - began) * (width - 50):.1f},{height - value / top * (height - 8):.1f}"

    marks = "".join(
        f'<line x1=46 x2={width - 4} y1={y:.0f} y2={y:.0f} stroke="#eee"/><text x=42 y={y + 3:.0f} text-anchor=end>{shown(value, unit)}</text>'
        for value in (0, top / 2, top)
        for y in (height - value / top * (height - 8),)
    )
    times = "".join(
        f'<text x={46 + (moment - began) / (ended - began) * (width - 50):.0f} y={height + 12} text-anchor=middle>'
        f"{time.strftime('%H:%M', time.gmtime(moment))}</text>"
        for moment in range(int(began // 60 + 1) * 60, int(ended), 60)
    )
    lines = "".join(
        f'<polyline fill=none stroke="{color}" stroke-width=1.4 points="{" ".join(at(*point) for point in points)}"/>'
        for (_, points), color in zip(shown_series, COLORS)
    )
    legend = " &nbsp; ".join(
        f'<span style="color:{color}">&#9644;</span> {escape(name)}' for (name, _), color in zip(shown_series, COLORS)
    )
    return f"<svg width={width} height={height + 14}>{marks}{times}{lines}</svg><div class=l>{legend}</div>"


def heatmap(series: list, width: int, height: int, began: float, ended: float) -> str:
    """A row for each bucket of a histogram, whose counts include those of the buckets below."""
    buckets = sorted(((float(name), dict(points)) for name, points in series), key=lambda bucket: bucket[0])
    counts = [
        {at: max(value - below.get(at, 0), 0) for at, value in bucket.items()}
        for (_, bucket), (_, below) in zip(buckets, [(0, {})] + buckets)
    ]
    most = max((value for row in counts for value in row.values()), default=0) or 1
    used = [number for number, row in enumerate(counts) if any(value > 0 for value in row.values())]
    row_height, cell = height / max(len(used), 1), (width - 60) * STEP_SECONDS / (ended - began)
    parts = []
    for row, number in enumerate(reversed(used)):
        parts.append(f'<text x=56 y={row * row_height + row_height / 2 + 3:.0f} text-anchor=end>{shown(buckets[number][0], "µs")}</text>')
        parts += (
            f'<rect x={60 + (at - began) / STEP_SECONDS * cell:.1f} y={row * row_height:.1f} width={cell:.1f} '
            f'height={row_height - 1:.1f} fill="{COLORS[0]}" opacity={value / most:.2f} />'
            for at, value in counts[number].items()
        )
    return f"<svg width={width} height={height}>{''.join(parts)}</svg>"


def shown(value: float, unit: str) -> str:
    scaled = {"percentunit": (value * 100, "%"), "reqps": (value, "/s"), "ops": (value, "/s"), "bytes": (value / 2**20, " MiB")}
    number, suffix = scaled.get(unit, (value, "" if unit == "short" else f" {unit}"))
    digits = 0 if abs(number) >= 100 or number == int(number) else 1 if abs(number) >= 10 else 2
    return f"{number:,.{digits}f}{suffix}"


if __name__ == "__main__":
    main()
