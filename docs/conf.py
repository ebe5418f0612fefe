"""How Sphinx builds the documentation: ``python -m sphinx -W -b html docs OUT``.

Nothing is fetched: no page of another project is asked for, and no font.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# The code beside this folder, not whatever is installed.
sys.path[:0] = [str(HERE.parent), str(HERE / "_ext")]

from nsqsmart import __version__  # noqa: E402 - found by the line above

project = "nsqsmart"
author = "The nsqsmart authors"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "option_tables"]
exclude_patterns = ["_ext"]
highlight_language = "text"
smartquotes = False  # what a page says can be typed

myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True}
# One argument a line, where they do not fit on one.
maximum_signature_line_length = 90
python_use_unqualified_type_names = True
napoleon_use_ivar = True

html_theme = "furo"
html_title = f"nsqsmart {release}"
html_show_sourcelink = False
html_copy_source = False
