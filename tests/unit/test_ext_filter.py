"""Rules of a filter: what a server would ignore is refused here."""

from __future__ import annotations

import re

import pytest

from nsqsmart.config import ConsumerConfig
from nsqsmart.embedded.broker.ext import make_filter
from nsqsmart.errors import ConfigError

RULE = {"filter_ext_key": "colour", "filter_data": "red"}


@pytest.mark.parametrize(
    "rules",
    [
        {"type": 1, **RULE},
        {"type": 2, **RULE, "inverse": True},
        {"type": 3, **RULE, "inverse": False},
        {"type": 4, "filter_ext_key": "any", "filter_data_list": [RULE]},
    ],
)
def test_what_a_server_takes(rules):
    assert ConsumerConfig(ext_filter=rules).ext_filter == rules
    assert make_filter(rules) is not None


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ({}, "type None is none of 1 (equal)"),
        ({"type": 0, **RULE}, "type 0"),
        ({"type": 5, **RULE}, "type 5"),
        ({"type": True, **RULE}, "type True"),
        ({"type": "1", **RULE}, "type '1'"),
        ({"type": 1, "filter_ext_key": "colour"}, "filter_data None must be a text"),
        ({"type": 2, "filter_ext_key": "", "filter_data": "x"}, "filter_ext_key ''"),
        ({"type": 3, "filter_ext_key": "k", "filter_data": 7}, "filter_data 7"),
        ({"type": 1, **RULE, "inverse": 1}, "inverse 1 must be True or False"),
        ({"ver": 1, **RULE}, "'ver' is none of type, inverse"),
        ({"type": 4, "filter_ext_key": "one", "filter_data_list": [RULE]}, "'all' or 'any'"),
        ({"type": 4, "filter_ext_key": "all", "filter_data_list": []}, "a list of rules"),
        ({"type": 4, "filter_ext_key": "all", "filter_data_list": RULE}, "a list of rules"),
        (
            {"type": 4, "filter_ext_key": "all", "filter_data_list": ["x"]},
            "'x' in filter_data_list",
        ),
        (
            {"type": 4, "filter_ext_key": "all", "filter_data_list": [RULE, {}]},
            "filter_ext_key None",
        ),
    ],
)
def test_what_a_server_would_ignore(rules, says):
    with pytest.raises(ConfigError, match=re.escape(says)):
        ConsumerConfig(ext_filter=rules)


def test_a_filter_is_a_dict():
    with pytest.raises(ConfigError, match="ext_filter='red' is not permitted: it must be a dict"):
        ConsumerConfig(ext_filter="red")
