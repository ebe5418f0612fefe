"""The documentation builds without a warning, and its tables of options are whole."""

from __future__ import annotations

import dataclasses
import html
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import nsqsmart
from nsqsmart.config import AdminConfig, ConsumerConfig, ProducerConfig
from nsqsmart.config.common import EmbeddedConfig
from nsqsmart.config.table import options_of
from tests.helpers import ROOT

DOCS = ROOT / "docs"
CONFIGS = (ProducerConfig, ConsumerConfig, AdminConfig, EmbeddedConfig)
REFERENCE = (DOCS / "reference.md").read_text()
# Types that a caller sees but does not make have their place in the pages that speak of them.
ELSEWHERE = {"Outcome", "PublishError", "NsqError", "errors", "metrics", "tracing", "__version__"}


def words(page: Path) -> str:
    """What a reader of *page* reads."""
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", "", page.read_text())))


def test_the_reference_has_every_export():
    named = set(re.findall(r"^\.\. auto\w+:: nsqsmart\.(\w+)$", REFERENCE, re.MULTILINE))
    assert named | ELSEWHERE >= set(nsqsmart.__all__)
    assert "automodule:: nsqsmart.errors" in REFERENCE


def test_the_reference_has_every_table():
    named = re.findall(r"^```\{options\} (\w+)$", REFERENCE, re.MULTILINE)
    assert set(named) == {"ClientConfig", *(kind.__name__ for kind in CONFIGS)}


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.stem)
def test_every_page_is_reached_from_the_front(page):
    lines = (DOCS / "index.md").read_text().splitlines()
    assert page.stem == "index" or page.stem in lines


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole site, built with no way to the network."""
    pytest.importorskip("furo", reason="Sphinx is not installed: pip install 'nsqsmart[docs]'")
    out = tmp_path_factory.mktemp("site")
    nowhere = dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9")
    run = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", DOCS, out],
        env=os.environ | nowhere,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert (run.returncode, run.stderr) == (0, "")
    return out


@pytest.mark.long
@pytest.mark.timeout(300)
def test_it_builds_without_a_warning(site):
    for page in DOCS.glob("*.md"):
        assert (site / f"{page.stem}.html").stat().st_size > 5000
    front = words(site / "index.html")
    assert "two apples" in front
    assert "nsqsmart demo" in front
    reference = (site / "reference.html").read_text()
    for method in ("Producer.publish", "Producer.close", "Consumer.run", "Message.finish"):
        assert f'id="nsqsmart.{method}"' in reference
    assert 'id="nsqsmart.Message._' not in reference


@pytest.mark.long
@pytest.mark.timeout(300)
def test_every_option_is_there_with_its_default_and_its_help(site):
    rows = words(site / "reference.html")
    for kind in CONFIGS:
        for name, row in options_of(kind).items():
            assert f"{name} {row.default!r} {row.permitted} {row.help}" in rows, name
    assert len(dataclasses.fields(ProducerConfig)) > 40


@pytest.mark.long
@pytest.mark.timeout(300)
def test_nothing_on_a_page_is_fetched_from_elsewhere(site):
    loads = re.compile(r'<(?:script|img|link|iframe)[^>]+(?:src|href)="(?:https?:)?//[^"]+')
    for page in site.glob("*.html"):
        assert loads.findall(page.read_text()) == []
