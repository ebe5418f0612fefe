"""Writes the keywords of clients from the option table: ``python -m tests.typed_options``."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from nsqsmart.config import KINDS, ClientConfig, Kind, options_of
from tests.helpers import PACKAGE

FILE = PACKAGE / "config" / "keywords.py"
# What is read beside the type of the field.
_TEXTS = {Kind.SECONDS: "str", Kind.PATH: "PathLike[str]"}


def keywords(kind: type) -> dict[str, str]:
    """The options that *kind* adds to those of every client: names and types, as they are written.

    Seconds may be text ("250ms"), paths may be path objects.
    """
    inherited = options_of(ClientConfig) if kind is not ClientConfig else {}
    found = {}
    for field in dataclasses.fields(kind):
        if field.name in inherited:
            continue
        written = str(field.type)
        more = _TEXTS.get(options_of(kind)[field.name].kind)
        if more:
            written = re.sub(r"^\w+", rf"\g<0> | {more}", written)
        found[field.name] = written
    return found


def name_of(kind: type) -> str:
    """ProducerOptions for ProducerConfig."""
    return kind.__name__.replace("Config", "Options")


def written(file: Path = FILE) -> dict[str, dict[str, str]]:
    """What stands in the file, by class."""
    classes: dict[str, dict[str, str]] = {}
    for line in file.read_text().splitlines():
        if line.startswith("class "):
            classes[line[6:].partition("(")[0]] = {}
        elif found := re.fullmatch(r"    (\w+): (.+)", line):
            classes[list(classes)[-1]][found[1]] = found[2]
    return classes


def main() -> None:
    """Write the classes anew, and leave what is above them."""
    head = FILE.read_text().partition("\n\n\nclass ")[0]
    blocks = [head]
    for kind in KINDS:
        base = "TypedDict" if kind is ClientConfig else name_of(ClientConfig)
        about = f'    """The options of :class:`~nsqsmart.config.{kind.__name__}`."""'
        rows = [f"    {name}: {text}" for name, text in keywords(kind).items()]
        top = f"class {name_of(kind)}({base}, total=False):"
        blocks.append("\n".join([top, about, "", *rows]))
    FILE.write_text("\n\n\n".join(blocks) + "\n")


if __name__ == "__main__":
    main()
