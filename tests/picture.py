"""Draws floors and rooms from the imports there are: ``python -m tests.picture``.

It writes docs/pictures/rooms.svg. A row imports only from rows below it.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from functools import cache
from html import escape
from pathlib import Path

from tests.helpers import PACKAGE, ROOT

PICTURE = ROOT / "docs" / "pictures" / "rooms.svg"

Graph = Mapping[str, set[str]]

FRONT = "front door"
"""What ``import nsqsmart`` gives."""
WIDTH, ROW, HEIGHT, GAP, EDGE = 860, 62, 40, 12, 20
STYLE = """
.ground { fill: #ffffff; stroke: #d1d9e0; }
.client { fill: #f6f8fa; stroke: #d1d9e0; }
.room { fill: #ddf4e9; stroke: #1a7f5a; }
.floor { fill: #eef1f4; stroke: #8c959f; }
.use { stroke: #8c959f; }
text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328; }
.note { fill: #59636e; font-size: 11px; }
@media (prefers-color-scheme: dark) {
  .ground { fill: #0d1117; stroke: #3d444d; }
  .client { fill: #151b23; stroke: #3d444d; }
  .room { fill: #12342a; stroke: #3fb98a; }
  .floor { fill: #212830; stroke: #768390; }
  .use { stroke: #768390; }
  text { fill: #e6edf3; }
  .note { fill: #9198a1; }
}
"""


def imports(folder: Path, prefix: str) -> dict[str, set[str]]:
    """Which parts of *folder*, a package named *prefix*, import which others of its parts."""
    parts = {
        path.stem: [path] if path.is_file() else sorted(path.rglob("*.py"))
        for path in sorted(folder.iterdir())
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    parts[FRONT] = parts.pop("__init__")
    found: dict[str, set[str]] = {}
    for name, files in parts.items():
        used = {part for file in files for part in imported(file.read_text(), prefix, parts)}
        found[name] = (used & parts.keys()) - {name}
    return found


def imported(source: str, prefix: str, parts: Collection[str]) -> set[str]:
    """Which of *parts* of the package *prefix* are imported by *source*."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        modules = []
        if isinstance(node, ast.Import):
            modules = [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == prefix:
            modules = [f"{prefix}.{name.name}" for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [node.module or ""]
        for module in modules:
            if module == prefix or module.startswith(f"{prefix}."):
                part = module[len(prefix) + 1 :].partition(".")[0]
                found.add(part if part in parts else FRONT)
    return found


def rows(graph: Graph) -> list[list[str]]:
    """The parts by level, the highest first: each imports only from lower ones."""

    @cache
    def level(name: str) -> int:
        return 1 + max((level(each) for each in graph[name]), default=-1)

    count = 1 + max(level(name) for name in graph)
    return [sorted(name for name in graph if level(name) == count - 1 - n) for n in range(count)]


def needed(graph: Graph, name: str) -> set[str]:
    """What *name* imports, without what it gets to by another one as well."""

    @cache
    def below(part: str) -> frozenset[str]:
        return frozenset(graph[part]).union(*(below(each) for each in graph[part]))

    return {each for each in graph[name] if not any(each in below(other) for other in graph[name])}


def untangled(graph: Graph) -> list[list[str]]:
    """:func:`rows`, each part above what it needs as far as that goes."""
    places: dict[str, float] = {}

    def wish(name: str) -> float:
        under = [places[each] for each in needed(graph, name)]
        return sum(under) / len(under) if under else 0.5

    levels = rows(graph)
    for row in reversed(levels):
        row.sort(key=wish)
        places |= {name: (number + 0.5) / len(row) for number, name in enumerate(row)}
    return levels


class Drawing:
    """Lines of an SVG, and where each box is."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.places: dict[str, tuple[float, float]] = {}

    def row(self, names: list[str], top: float, kind: str, notes: Mapping[str, str]) -> None:
        """Boxes beside each other, over the whole width."""
        wide = (WIDTH - 2 * EDGE - 2 * GAP - GAP * (len(names) - 1)) / len(names)
        for number, name in enumerate(names):
            left = EDGE + GAP + number * (wide + GAP)
            self.box(name, (left, top, wide), kind, notes.get(name, ""))

    def box(self, name: str, at: tuple[float, float, float], kind: str, note: str) -> None:
        """One box with its name, and a note below that."""
        left, top, wide = at
        middle = left + wide / 2
        self.places[name] = middle, top
        self.lines.append(
            f'<rect class="{kind}" x="{left:.0f}" y="{top:.0f}" width="{wide:.0f}" '
            f'height="{HEIGHT}" rx="5"/>'
        )
        up = 17 if note else 25
        self.text(middle, top + up, name)
        if note:
            self.text(middle, top + 32, note, "note")

    def text(self, left: float, top: float, text: str, kind: str = "") -> None:
        """A line of text around *left*."""
        mark = f' class="{kind}"' if kind else ""
        self.lines.append(
            f'<text{mark} x="{left:.0f}" y="{top:.0f}" text-anchor="middle">{escape(text)}</text>'
        )

    def arrows(self, graph: Graph) -> None:
        """From the lower edge of each box to what it needs."""
        for name in sorted(graph):
            left, top = self.places[name]
            for each in sorted(needed(graph, name)):
                right, bottom = self.places[each]
                self.lines.insert(
                    0,
                    f'<line class="use" x1="{left:.0f}" y1="{top + HEIGHT:.0f}" '
                    f'x2="{right:.0f}" y2="{bottom:.0f}"/>',
                )


def draw() -> str:
    """The picture, as it ought to be."""
    floors = imports(PACKAGE, "nsqsmart")
    rooms = imports(PACKAGE / "client", "nsqsmart.client")
    for hidden in ("__main__", "_version"):
        del floors[hidden]
    del rooms[FRONT]
    floors = {name: used & floors.keys() for name, used in floors.items()}
    notes = {name: ", ".join(sorted(needed(floors, name))) for name in floors}
    notes = {name: f"on {note}" if note else "on nothing" for name, note in notes.items()}
    drawing, top = Drawing(), float(EDGE + 44)
    background: list[str] = []
    for row in rows(floors):
        if "client" not in row:
            drawing.row(row, top, "floor", notes)
            top += ROW
            continue
        beside = [name for name in row if name != "client"]
        if beside:
            drawing.row(beside, top, "floor", notes)
            top += ROW
        inside = untangled(rooms)
        high = len(inside) * ROW + 22
        background.append(
            f'<rect class="client" x="{EDGE}" y="{top - 6:.0f}" width="{WIDTH - 2 * EDGE}" '
            f'height="{high}" rx="8"/>'
        )
        drawing.text(EDGE + 90, top + 12, f"client, {notes['client']}", "note")
        top += 24
        for names in inside:
            drawing.row(names, top, "room", {})
            top += ROW
        top += 8
    drawing.arrows(rooms)
    title = "nsqsmart: each part imports only from rows below it"
    drawing.text(WIDTH / 2, EDGE + 14, title)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top:.0f}" '
            f'width="{WIDTH}" height="{top:.0f}" role="img">',
            f"<title>{title}</title>",
            f"<desc>{escape(describe(floors, rooms))}</desc>",
            f"<style>{STYLE}</style>",
            f'<rect class="ground" x="0.5" y="0.5" width="{WIDTH - 1}" height="{top - 1:.0f}" '
            'rx="8"/>',
            *background,
            *drawing.lines,
            "</svg>\n",
        ]
    )


def describe(floors: Graph, rooms: Graph) -> str:
    """The picture in words."""
    above = " over ".join(", ".join(row) for row in rows(floors))
    inside = " over ".join(", ".join(row) for row in rows(rooms))
    return f"Floors: {above}. Rooms of client: {inside}."


if __name__ == "__main__":
    PICTURE.write_text(draw())
