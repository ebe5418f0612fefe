"""Draws docs/pictures/publish-and-consume.svg from benchmarks/figures.json.

``python benchmarks/picture.py`` after the medians of publish.py and consume.py went into the file.
One picture for light and dark: its colours follow the reader's scheme.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

FIGURES = Path(__file__).parent / "figures.json"
PICTURE = Path(__file__).parent.parent / "docs" / "pictures" / "publish-and-consume.svg"

WIDTH, NAME, BAR, STEP, TOP, GAP, EDGE = 740, 115, 470, 26, 56, 20, 20

STYLE = """
.ground { fill: #ffffff; stroke: #d1d9e0; }
text { font: 14px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328; }
.title { font-weight: 600; font-size: 15px; }
.note { fill: #59636e; font-size: 12px; }
.bar { fill: #afb8c1; }
.ours { fill: #1a7f5a; }
.bare { fill: none; stroke: #8c959f; stroke-dasharray: 4 3; }
text.ours { fill: #1a7f5a; font-weight: 600; }
@media (prefers-color-scheme: dark) {
  .ground { fill: #0d1117; stroke: #3d444d; }
  text { fill: #e6edf3; }
  .note { fill: #9198a1; }
  .bar { fill: #545d68; }
  .ours { fill: #3fb98a; }
  .bare { stroke: #768390; }
  text.ours { fill: #3fb98a; }
}
"""


def draw(figures: dict[str, Any]) -> str:
    """The picture as SVG."""
    lines: list[str] = []
    top = 0
    for chart in figures["charts"]:
        lines += _chart(chart, top)
        top += TOP + STEP * len(chart["bars"]) + GAP
    height = top - GAP + 2 * EDGE
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" height="{height}" role="img">',
            f"<title>{escape(figures['title'])}</title>",
            f"<desc>{escape(_words(figures))}</desc>",
            f"<style>{STYLE}</style>",
            # A ground of its own: a page may be dark where the system is light.
            f'<rect class="ground" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" '
            'rx="8"/>',
            f'<g transform="translate({EDGE} {EDGE})">',
            *lines,
            "</g>",
            "</svg>\n",
        ]
    )


def _chart(chart: dict[str, Any], top: int) -> Iterator[str]:
    yield f'<text class="title" x="0" y="{top + 20}">{escape(chart["title"])}</text>'
    yield f'<text class="note" x="0" y="{top + 40}">{escape(chart["note"])}</text>'
    most = max(_top_of(bar) for bar in chart["bars"])
    for number, bar in enumerate(chart["bars"]):
        y = top + TOP + STEP * number
        kind = {"nsqsmart": "ours", chart["bare"]: "bare"}.get(bar["name"], "bar")
        width = max(2, round(BAR * _top_of(bar) / most))
        label = "ours" if kind == "ours" else ""
        yield f'<text class="{label}" x="0" y="{y + 13}">{escape(bar["name"])}</text>'
        yield f'<rect class="{kind}" x="{NAME}" y="{y + 1}" width="{width}" height="16" rx="3"/>'
        shown = escape(_shown(bar))
        yield f'<text class="{label}" x="{NAME + width + 8}" y="{y + 13}">{shown}</text>'


def _top_of(bar: dict[str, Any]) -> float:
    # Where rounds differed too much for one figure, the bar is the larger: in favour of the peer.
    return float(bar.get("most", bar["figure"]))


def _shown(bar: dict[str, Any]) -> str:
    least = f"{bar['figure']:,}"
    return f"{least} to {bar['most']:,}" if "most" in bar else least


def _words(figures: dict[str, Any]) -> str:
    """For who does not see it."""
    said = []
    for chart in figures["charts"]:
        bars = ", ".join(f"{bar['name']} {_shown(bar)}" for bar in chart["bars"])
        said.append(f"{chart['title']}: {bars}.")
    return " ".join(said)


def main() -> None:
    """Draw it anew."""
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(draw(json.loads(FIGURES.read_text())))
    print(PICTURE)


if __name__ == "__main__":
    main()
