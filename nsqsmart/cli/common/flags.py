"""The flags that several commands have: where NSQ is, and every option of the client."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable
from typing import Any

from nsqsmart.cli.common.parsing import Parser, UsageError
from nsqsmart.config import ClientConfig, Kind, Option, options_of, variable
from nsqsmart.config.addresses import EXAMPLES
from nsqsmart.config.resolve import URL
from nsqsmart.config.values import read_seconds
from nsqsmart.errors import ConfigError
from nsqsmart.names import Address, check_topic

GIVEN = "option "
"""Before the name of an option in the namespace: no flag of a command has a space."""
_MOST = 1 << 53
_MAX_PORT = 65535
_NAME_ONLY = re.compile(r"[a-zA-Z][a-zA-Z0-9_-]*")


def add_address(parser: Parser, *, to: bool = False) -> None:
    """``--url``, or the addresses as the Go tools take them; *to* for those of a destination."""
    url, prefix = ("--to-url", "--destination-") if to else ("--url", "--")
    where = "of the destination " if to else ""
    default = "that of the source" if to else f"the environment variable {URL}"
    parser.add_argument(
        url,
        metavar="URL",
        help=f"address {where}as nsq+lookupd://HOST:4161 or nsq://HOST:4150 (default: {default})",
    )
    parser.add_argument(
        f"{prefix}nsqd-tcp-address",
        action="append",
        metavar="HOST:PORT",
        help="an nsqd, instead of a URL; may be repeated",
    )
    parser.add_argument(
        f"{prefix}lookupd-http-address",
        action="append",
        metavar="HOST:PORT",
        help="an nsqlookupd, instead of a URL; may be repeated",
    )


def address_of(chosen: argparse.Namespace) -> str:
    """The address that the flags and the environment name; raises ConfigError, UsageError."""
    found = _one_address(chosen, "url", "")
    if found is None and not (found := os.environ.get(URL)):
        raise ConfigError(f"no address: give --url or set {URL}, to {EXAMPLES}")
    return found


def destination_of(chosen: argparse.Namespace) -> str | None:
    """The address of a destination, or None; raises ConfigError, UsageError."""
    return _one_address(chosen, "to_url", "destination_")


def _one_address(chosen: argparse.Namespace, url: str, prefix: str) -> str | None:
    schemes = {
        url: "",
        f"{prefix}nsqd_tcp_address": "nsq://",
        f"{prefix}lookupd_http_address": "nsq+lookupd://",
    }
    used = {_flag_of(name): name for name in schemes if getattr(chosen, name)}
    if len(used) > 1:
        raise UsageError(f"give {' or '.join(used)}, not both")
    for flag, name in used.items():
        value, scheme = getattr(chosen, name), schemes[name]
        return scheme + ",".join(_host(flag, host) for host in value) if scheme else str(value)
    return None


def _flag_of(name: str) -> str:
    return "--" + name.replace("_", "-")


def _host(flag: str, text: str) -> str:
    if "://" in text:
        raise UsageError(f"{flag} {text}: it is HOST:PORT without a scheme; --url takes the whole")
    try:
        Address.parse(text, 1)
    except ConfigError as error:
        raise UsageError(f"{flag}: {error}") from None
    return text


# ----------------------------------------------------------------------------- options of clients


def add_options(parser: Parser, *kinds: type[ClientConfig]) -> None:
    """A flag for every option of *kinds* that the command has no flag of its own for.

    They are left out of ``--help`` and shown by ``--help-options``: there are dozens.
    """
    options = {name: row for kind in kinds for name, row in options_of(kind).items()}
    shown = {}
    for name, row in options.items():
        flag = _flag_of(name)
        if row.kind is Kind.OBJECT or flag in parser._option_string_actions:  # noqa: SLF001 - no public list
            continue
        shown[flag] = (name, row)
        switch: dict[str, Any] = {"dest": GIVEN + name, "default": argparse.SUPPRESS}
        switch["help"] = argparse.SUPPRESS
        if row.kind is Kind.FLAG:
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, **switch)
        else:
            parser.add_argument(flag, type=_reader(name, row), metavar="VALUE", **switch)
    parser.add_argument(
        "--help-options",
        action=_HelpOptions,
        nargs=0,
        dest=argparse.SUPPRESS,
        const=shown,
        help=f"list the options of the client, which are flags too ({len(shown)})",
    )


def add_go_options(parser: Parser, flag: str, *kinds: type[ClientConfig]) -> None:
    """``--consumer-opt name,value`` and ``--producer-opt``, which set one option."""
    options = {name: row for kind in kinds for name, row in options_of(kind).items()}

    def read(text: str) -> tuple[str, Any]:
        name, _, value = text.partition(",")
        if name not in options:
            raise argparse.ArgumentTypeError(_no_option(name))
        return name, _reader(name, options[name], flag)(value or "true")

    parser.add_argument(
        flag, action="append", default=[], type=read, metavar="NAME,VALUE", help=argparse.SUPPRESS
    )


def _no_option(text: str) -> str:
    """What is wrong with *text*; what follows a name may be a secret, and is not said."""
    name, wrong = _NAME_ONLY.match(text), _NAME_ONLY.fullmatch(text) is None
    if name and wrong:
        return f"{name[0]!r} and its value are parted by a comma: NAME,VALUE"
    return f"unknown option {text!r} (--help-options lists them)" if name else "it is NAME,VALUE"


def client_options(chosen: argparse.Namespace, kind: type[ClientConfig]) -> dict[str, Any]:
    """The options of *kind* that were given as flags."""
    given = {
        name.removeprefix(GIVEN): value
        for name, value in vars(chosen).items()
        if name.startswith(GIVEN)
    }
    for flag in ("producer_opt", "consumer_opt"):
        given |= dict(getattr(chosen, flag, ()))
    return {name: value for name, value in given.items() if name in options_of(kind)}


def _reader(name: str, row: Option, flag: str = "") -> Callable[[str], Any]:
    source = flag or _flag_of(name)

    def read(text: str) -> Any:
        try:
            return row.check(name, text, source)
        except ConfigError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return read


class _HelpOptions(argparse.Action):
    """Prints the table of options, and ends."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        print(
            f"Options of the client, as flags of {parser.prog}. Each has the same name in the "
            "query of an address\nand in the environment; the flag wins.\n"
        )
        for flag, (name, row) in self.const.items():
            print(f"{flag}  ({variable(name)}, default {row.default})\n    {row.help}")
        parser.exit()


# ---------------------------------------------------------------------------------------- values


def seconds(text: str) -> float:
    """``2``, ``250ms``, ``1m30s``; more than 0."""
    value = read_seconds(text)
    if value is None or not 0 < value < _MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is not seconds, as 2, 250ms or 1m30s")
    return value


def seconds_or_off(text: str) -> float:
    """Seconds as :func:`seconds` reads them, or 0 for off."""
    return 0.0 if read_seconds(text) == 0 else seconds(text)


def count(text: str) -> int:
    """A whole number, 1 or more."""
    if not text.isdecimal() or not 0 < int(text) < _MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)


def port(text: str) -> int:
    """A port to listen at, 1 or more."""
    value = count(text)
    if value > _MAX_PORT:
        raise argparse.ArgumentTypeError(f"{text} is not a port")
    return value


def size(text: str) -> int:
    """Bytes, 0 or more."""
    if not text.isdecimal() or int(text) >= _MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of bytes")
    return int(text)


def add_seconds(parser: Parser, flag: str, what: str, default: float | None = None) -> None:
    """A flag that takes :func:`seconds`; *what* is its help."""
    parser.add_argument(flag, type=seconds, default=default, metavar="SECONDS", help=what)


def add_count(parser: Parser, flag: str, what: str, default: int | None = None) -> None:
    """A flag that takes a :func:`count`; *what* is its help."""
    parser.add_argument(flag, type=count, default=default, metavar="N", help=what)


def add_json(parser: Parser, what: str) -> None:
    """``--json``."""
    parser.add_argument("--json", action="store_true", help=what)


def add_topics(parser: Parser) -> None:
    """Topics as words, or by the flag of the Go tools."""
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="one topic or more")
    parser.add_argument("--topic", action="append", default=[], help="a topic; may be repeated")


def topics_of(chosen: argparse.Namespace) -> list[str]:
    """Each topic once; raises :class:`ConfigError` for a name that cannot be."""
    return list(dict.fromkeys(map(check_topic, chosen.topics + chosen.topic)))
