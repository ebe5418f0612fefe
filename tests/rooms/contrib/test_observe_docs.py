"""The page about metrics names every one as it is, and the alert rules speak of nothing else."""

from __future__ import annotations

import re

import pytest
import yaml

from nsqsmart.metrics import CLOSED, INSTRUMENTS, REASONS, SETTLED
from tests.helpers import ROOT

PAGE = (ROOT / "docs" / "observe.md").read_text()
OPERATE = (ROOT / "docs" / "operate.md").read_text()
(RULES,) = re.findall(r"```yaml\n(.*?)```", OPERATE, re.DOTALL)
ALERTS = [rule for group in yaml.safe_load(RULES)["groups"] for rule in group["rules"]]


def test_the_table_is_that_of_the_code():
    rows = [
        f"| `nsqsmart_{name}` | {row.kind} | {', '.join(row.labels) or '-'} | {row.help} |"
        for name, row in INSTRUMENTS.items()
    ]
    assert re.findall(r"^\| `nsqsmart_.*$", PAGE, re.MULTILINE) == rows


@pytest.mark.parametrize("word", sorted({*CLOSED, *REASONS, *SETTLED}))
def test_every_value_of_a_label_is_explained(word):
    assert re.search(rf"\b{word}\b", PAGE.split("## OpenTelemetry")[0])


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_an_alert_is_about_metrics_and_labels_that_there_are(rule):
    (name,) = set(re.findall(r"nsqsmart_(\w+)", rule["expr"]))
    plain = re.sub(r"_(bucket|sum|count)$", "", name)
    row = INSTRUMENTS.get(name) or INSTRUMENTS[plain]
    assert (plain != name) == (row.kind == "histogram")
    if row.kind != "gauge":
        assert "rate(" in rule["expr"] or "increase(" in rule["expr"]
    labels = {*row.labels, "le", "instance"}
    for listed in re.findall(r"by \(([\w, ]+)\)", rule["expr"]):
        assert set(listed.split(", ")) <= labels
    for label, _, value in re.findall(r'(\w+)(=~?)"([^"]+)"', rule["expr"]):
        assert label in labels
        assert set(value.split("|")) <= {"ok", "error", *SETTLED}
    shown = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    assert shown <= labels
    assert rule["annotations"]["action"].endswith(".")


def test_brackets_and_braces_are_closed():
    for rule in ALERTS:
        for one, other in ("()", "[]", "{}"):
            assert rule["expr"].count(one) == rule["expr"].count(other)
