"""The rules of ``ext_filter``, checked here: the server ignores a bad one and sends everything.

As they stand in protocol#ext-filter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from nsqsmart.errors import ConfigError

_EQUAL: Final = 1
_KINDS: Final = {_EQUAL: "equal", 2: "regular expression", 3: "glob", 4: "several rules"}
_SEVERAL: Final = 4
_KEY, _DATA, _LIST = "filter_ext_key", "filter_data", "filter_data_list"
_KNOWN: Final = ("type", "inverse", _KEY, _DATA, _LIST)


def check_filter(rules: Mapping[str, Any]) -> None:
    """Raise :class:`ConfigError` for a filter that a redesigned nsqd would ignore."""
    for name in rules:
        if name not in _KNOWN:
            raise ConfigError(f"ext_filter: {name!r} is none of {', '.join(_KNOWN)}")
    kind = rules.get("type")
    if type(kind) is not int or kind not in _KINDS:
        meanings = ", ".join(f"{number} ({name})" for number, name in _KINDS.items())
        raise ConfigError(f"ext_filter: type {kind!r} is none of {meanings}")
    if not isinstance(rules.get("inverse", False), bool):
        raise ConfigError(f"ext_filter: inverse {rules['inverse']!r} must be True or False")
    if kind == _SEVERAL:
        _check_several(rules)
    else:
        _check_rule(rules)


def _check_rule(rule: Mapping[str, Any]) -> None:
    for name in (_KEY, _DATA):
        value = rule.get(name)
        if not isinstance(value, str) or not value:
            raise ConfigError(f"ext_filter: {name} {value!r} must be a text that is not empty")


def _check_several(rules: Mapping[str, Any]) -> None:
    relation, entries = rules.get(_KEY), rules.get(_LIST)
    if relation not in ("all", "any"):
        raise ConfigError(f"ext_filter: {_KEY} {relation!r} must be 'all' or 'any' for type 4")
    if not isinstance(entries, list) or not entries:
        raise ConfigError(f"ext_filter: type 4 needs {_LIST}, a list of rules")
    for entry in entries:
        if not isinstance(entry, Mapping):
            raise ConfigError(f"ext_filter: {entry!r} in {_LIST} must be a dict")
        _check_rule(entry)
