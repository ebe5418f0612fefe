"""SECURITY.md says how to report, what is supported, what the defaults are; it invents nothing."""

from __future__ import annotations

import re

import pytest

from nsqsmart.config import ConsumerConfig
from tests.helpers import ROOT

POLICY = (ROOT / "SECURITY.md").read_text()


@pytest.mark.parametrize("title", ["Reporting", "What is supported", "Defaults"])
def test_what_it_has_to_say(title) -> None:
    assert re.search(rf"^## {title}\n\n\S", POLICY, re.MULTILINE)


def test_reports_go_to_the_forge_and_to_no_address_that_may_not_exist() -> None:
    assert "private vulnerability" in " ".join(POLICY.split())
    assert not re.search(r"\S@\S|mailto:|https?://", POLICY)


def test_what_it_refers_to_is_there() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", POLICY) + ["tests/corpus"]:
        assert (ROOT / target).exists()


def test_its_defaults_are_those_of_the_options() -> None:
    config = ConsumerConfig()
    assert config.tls_min_version == "tls1.2"
    assert not config.tls_insecure_skip_verify
    assert not config.allow_plaintext_auth
