"""The picture of the README is drawn from the figures, and shows them."""

from __future__ import annotations

import importlib.util
import json
import xml.etree.ElementTree as ET

import pytest

from tests.helpers import ROOT

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def picture():
    spec = importlib.util.spec_from_file_location("picture", ROOT / "benchmarks" / "picture.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def figures(picture):
    return json.loads(picture.FIGURES.read_text())


def test_the_picture_in_docs_is_that_of_the_figures(picture, figures):
    assert picture.PICTURE.read_text() == picture.draw(figures)


def test_every_figure_is_shown_and_bars_are_in_proportion(picture, figures):
    root = ET.fromstring(picture.draw(figures))
    shown = [each.text for each in root.iter(f"{SVG}text")]
    bars = [int(each.get("width")) for each in root.iter(f"{SVG}rect")][1:]
    for chart in figures["charts"]:
        most = max(bar.get("most", bar["figure"]) for bar in chart["bars"])
        for bar in chart["bars"]:
            assert bar["name"] in shown
            assert any(text.startswith(f"{bar['figure']:,}") for text in shown)
            share = bar.get("most", bar["figure"]) / most
            assert bars.pop(0) / picture.BAR == pytest.approx(share, abs=0.01)
    assert bars == []


def test_names_are_text_and_nothing_else(picture):
    chart = {"title": "<&", "note": "", "bare": "", "bars": [{"name": "<b>", "figure": 1}]}
    root = ET.fromstring(picture.draw({"title": "a < b", "charts": [chart]}))
    assert "<b>" in [each.text for each in root.iter(f"{SVG}text")]


def test_the_readme_says_the_same(figures):
    page = (ROOT / "README.md").read_text()
    (alternative,) = [line for line in page.splitlines() if line.startswith("![One publish")]
    for chart in figures["charts"]:
        ours = {bar["name"]: bar["figure"] for bar in chart["bars"]}
        for name in ("bare socket", "nsqsmart", "pynsq"):
            assert f"{ours[name]:,}" in alternative
