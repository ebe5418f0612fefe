"""The directive ``{options} CLASS``: the rows of a config class, from the option table itself.

``{options} ProducerConfig`` shows what ``ClientConfig`` does not have already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from nsqsmart.config import common, roles
from nsqsmart.config.table import Option, options_of

if TYPE_CHECKING:
    from sphinx.application import Sphinx

KINDS = {
    kind.__name__: kind
    for kind in (
        common.ClientConfig,
        common.EmbeddedConfig,
        roles.ProducerConfig,
        roles.ConsumerConfig,
        roles.AdminConfig,
    )
}


def own_options(name: str) -> dict[str, Option]:
    """The options of the config class *name* that every client does not have anyway."""
    kind = KINDS[name]
    common_ones = () if kind is common.ClientConfig else options_of(common.ClientConfig)
    return {key: row for key, row in options_of(kind).items() if key not in common_ones}


def table_of(name: str) -> list[str]:
    """The lines of a Markdown table: name, default, what is permitted, what it means."""
    lines = ["| option | default | may be | what it means |", "|---|---|---|---|"]
    for key, row in own_options(name).items():
        cells = (f"`{key}`", f"`{row.default!r}`", _plain(row.permitted), _plain(row.help))
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _plain(text: str) -> str:
    for mark in "|*_<":
        text = text.replace(mark, f"\\{mark}")
    return text


class Options(SphinxDirective):
    """``{options} CLASS``."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Parse the table as if the page had it."""
        return self.parse_text_to_nodes("\n".join(table_of(self.arguments[0])))


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("options", Options)
    return {"parallel_read_safe": True}
