"""Pictures in SVG, legible on light and dark pages: horizontal bars, dots on a logarithmic axis, and lines."""

import math
from html import escape

WIDTH = 760
ROW = 24
TOP = 62
LABELS = 210
RIGHT = 70
PLOT = WIDTH - LABELS - RIGHT
# Of a picture with lines.
HEIGHT = 300
LEFT, BOTTOM = 60, 44
STYLE = """
  text { font: 12px system-ui, -apple-system, 'Segoe UI', sans-serif; fill: #1f2328 }
  .title { font-weight: 600; font-size: 14px }
  .quiet { fill: #59636e }
  .end { text-anchor: end } .middle { text-anchor: middle }
  .page { fill: #ffffff } .grid { stroke: #d1d9e0 }
  .s0 { fill: #0969da; stroke: #0969da } .s1 { fill: #bc4c00; stroke: #bc4c00 } .s2 { fill: #1a7f37; stroke: #1a7f37 }
  polyline.s0, polyline.s1, polyline.s2 { fill: none; stroke-width: 2 }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc } .quiet { fill: #9198a1 }
    .page { fill: #0d1117 } .grid { stroke: #3d444d }
    .s0 { fill: #4493f8; stroke: #4493f8 } .s1 { fill: #f0883e; stroke: #f0883e } .s2 { fill: #3fb950; stroke: #3fb950 }
    polyline.s0, polyline.s1, polyline.s2 { fill: none }
  }
"""


def bars(title: str, series: list[str], rows: list[tuple[str, list[float]]], digits: int = 1) -> str:
    """Each row's values stacked, and their sum."""
    longest = max(sum(values) for _, values in rows)
    parts = [heading(title), *legend(series)]
    for number, (label, values) in enumerate(rows):
        y = TOP + number * ROW
        parts.append(text(LABELS - 8, y + 15, label, "end"))
        x = float(LABELS)
        for which, value in enumerate(values):
            width = max(value, 0) / longest * PLOT
            parts.append(f'<rect class="s{which}" x="{x:.1f}" y="{y + 4}" width="{width:.1f}" height="{ROW - 8}"/>')
            x += width
        parts.append(text(x + 6, y + 15, f"{sum(values):.{digits}f}", "quiet"))
    return document(parts, TOP + len(rows) * ROW + 12, title)


def dots(title: str, series: list[str], rows: list[tuple[str, list[float]]]) -> str:
    """Each row's values on one logarithmic axis."""
    values = [value for _, of_row in rows for value in of_row]
    low, high = math.log10(min(values)) - 0.1, math.log10(max(values)) + 0.1
    bottom = TOP + len(rows) * ROW

    def place(value: float) -> float:
        return LABELS + (math.log10(value) - low) / (high - low) * (PLOT + 40)

    parts = [heading(title), *legend(series)]
    for power in range(math.ceil(low), math.floor(high) + 1):
        x = place(10**power)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}"/>')
        parts.append(text(x, bottom + 16, f"{10.0**power:g} ms", "middle quiet"))
    for number, (label, of_row) in enumerate(rows):
        y = TOP + number * ROW + ROW / 2
        parts.append(text(LABELS - 8, y + 4, label, "end"))
        for which, value in enumerate(of_row):
            parts.append(f'<circle class="s{which}" cx="{place(value):.1f}" cy="{y}" r="4.5"/>')
    return document(parts, bottom + 28, title)


def lines(title: str, x_label: str, x_names: list[str], series: dict[str, list[float]]) -> str:
    """Points at equal distances, for any values."""
    high = nice(max(value for values in series.values() for value in values))
    right, bottom = WIDTH - 30, HEIGHT - BOTTOM

    def place(number: int, value: float) -> tuple[float, float]:
        step = (right - LEFT - 40) / max(len(x_names) - 1, 1)
        return LEFT + 20 + number * step, bottom - value / high * (bottom - TOP)

    parts = [heading(title), *legend(list(series))]
    for quarter in range(5):
        _, y = place(0, high * quarter / 4)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(text(LEFT - 8, y + 4, f"{high * quarter / 4:g}", "end quiet"))
    for number, name in enumerate(x_names):
        parts.append(text(place(number, 0)[0], bottom + 18, name, "middle"))
    parts.append(text((LEFT + right) / 2, bottom + 36, x_label, "middle quiet"))
    for which, values in enumerate(series.values()):
        places = [place(number, value) for number, value in enumerate(values)]
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline class="s{which}" points="{points}"/>')
        parts += [f'<circle class="s{which}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>' for x, y in places]
    return document(parts, HEIGHT, title)


def nice(value: float) -> float:
    """The next number above whose quarters are easy to read."""
    power = 10 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 4, 8, 10) if value <= step * power)


def heading(title: str) -> str:
    return text(16, 24, title, "title")


def legend(series: list[str]) -> list[str]:
    parts, x = [], 16.0
    for which, name in enumerate(series):
        parts.append(f'<rect class="s{which}" x="{x:.0f}" y="37" width="10" height="10"/>')
        parts.append(text(x + 16, 47, name, "quiet"))
        x += 34 + 6.6 * len(name)
    return parts


def text(x: float, y: float, what: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(what)}</text>'


def document(parts: list[str], height: float, title: str) -> str:
    size = f'viewBox="0 0 {WIDTH} {height:.0f}"'
    begin = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(title)}">'
    page = f'<rect class="page" width="{WIDTH}" height="{height:.0f}"/>'
    return "\n".join([begin, f"<style>{STYLE}</style>", page, *parts, "</svg>", ""])
