"""From what the user gave and the environment holds to one endpoint and one config."""

from __future__ import annotations

import dataclasses
import difflib
import os
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

from nsqsmart.config.addresses import EMBEDDED, EXAMPLES, Endpoint
from nsqsmart.config.common import TLS_MATERIAL, ClientConfig, EmbeddedConfig
from nsqsmart.config.roles import AdminConfig, ConsumerConfig, ProducerConfig
from nsqsmart.config.table import Option, options_of
from nsqsmart.config.values import Kind
from nsqsmart.errors import ConfigError

C = TypeVar("C", bound=ClientConfig)

PREFIX: Final = "NSQSMART_"
URL: Final = "NSQSMART_URL"
_OTHERS: Final = ("NSQSMART_REQUIRE", "NSQSMART_TEST_")
KINDS: Final = (ClientConfig, ProducerConfig, ConsumerConfig, AdminConfig)
"""Every config class; together they hold every name there is."""
_IN_QUERY: Final = "the address"
_MISSPELT: Final = 0.87
"""So similar is a name with a wrong letter or two; two options are never so similar."""


def resolve(
    kind: type[C],
    address: str | None = None,
    options: Mapping[str, object] | None = None,
    *,
    config: C | None = None,
    environ: Mapping[str, str] | None = None,
    defaults: Mapping[str, object] | None = None,
) -> tuple[Endpoint, C]:
    """Work out where a client goes and what it is told.

    Precedence: *options* (keywords), the query of the address, the environment, the default.
    A *config* stands in for the environment and the defaults; *defaults* go before those of the
    table. Without an *address*,
    ``NSQSMART_URL`` is it. The query may hold options of another kind of client, which are
    checked and passed over: producers and consumers can share one address.

    The query of the returned endpoint is what speaks of the embedded cluster.

    Raises :class:`ConfigError` for a value that is not permitted, an unknown name, or no address;
    TypeError for an argument of the wrong type. A ``NSQSMART_*`` variable that is a letter or two
    off an option is refused too, unless a *config* stands in for the environment; any other
    unknown one warns.
    """
    environ = os.environ if environ is None else environ
    options = options or {}
    if config is not None and not isinstance(config, kind):
        raise TypeError(f"config must be a {kind.__name__}, not a {type(config).__name__}")
    _check_variables(environ, refuse=config is None)
    endpoint = _find_endpoint(address, environ)
    chosen = {} if config is not None else _from_environment(kind, environ, defaults or {})
    if endpoint.tls:
        chosen["tls_v1"] = True
    chosen |= _from_query(kind, endpoint)
    chosen |= _from_keywords(kind, options)
    made = kind(**chosen) if config is None else dataclasses.replace(config, **chosen)
    _check_tls(endpoint, made)
    own = tuple(pair for pair in endpoint.query if endpoint.embedded and pair[0] in _CLUSTER)
    return dataclasses.replace(endpoint, query=own), made


def embedded_config(endpoint: Endpoint) -> EmbeddedConfig:
    """What the query of an ``nsq+embedded://`` address says of the cluster."""
    chosen = {
        name: _CLUSTER[name].check(name, value, _IN_QUERY)
        for name, value in endpoint.query
        if name in _CLUSTER
    }
    return EmbeddedConfig(**chosen)


def read_options(
    kind: type[ClientConfig], options: Mapping[str, object], source: str, *, shared: bool = False
) -> dict[str, Any]:
    """The *options* from *source*, "settings.NSQSMART" say, as a client of *kind* keeps them.

    Where several kinds of clients share one place, those of the other kinds are checked and left
    out. Raises :class:`ConfigError`, which names the source, for an unknown name, the nearest right
    one beside it, and for a value that is not permitted.
    """
    own = {}
    for name, value in options.items():
        if not shared or name in options_of(kind):
            own[name] = value
        elif name in _EVERY:
            _EVERY[name].check(name, value, source)
        else:
            raise ConfigError(f"{_unknown(repr(name), str(name), _EVERY)} (from {source})")
    return _from_keywords(kind, own, source)


def variable(name: str) -> str:
    """The environment variable of an option."""
    return PREFIX + name.upper()


_EVERY = {name: option for kind in KINDS for name, option in options_of(kind).items()}
_CLUSTER = options_of(EmbeddedConfig)


def _find_endpoint(address: str | None, environ: Mapping[str, str]) -> Endpoint:
    if address is not None:
        return Endpoint.parse(address)
    if not environ.get(URL):
        raise ConfigError(f"no address: give one or set {URL}, to {EXAMPLES}")
    try:
        return Endpoint.parse(environ[URL])
    except ConfigError as error:
        raise ConfigError(f"{URL}: {error}") from None


def _from_environment(
    kind: type[ClientConfig], environ: Mapping[str, str], defaults: Mapping[str, object]
) -> dict[str, Any]:
    chosen = dict(defaults)
    for name, option in options_of(kind).items():
        # Set to nothing is how a compose file says "not set".
        if value := environ.get(variable(name)):
            chosen[name] = _check_text(name, option, value, variable(name))
    return chosen


def _from_query(kind: type[ClientConfig], endpoint: Endpoint) -> dict[str, Any]:
    known = _EVERY | options_of(kind) | (_CLUSTER if endpoint.embedded else {})
    chosen: dict[str, Any] = {}
    for name, value in endpoint.query:
        if name not in known:
            # With an '&' in it, part of a secret looks like a name.
            secret = any(known[each].secret for each, _ in endpoint.query if each in known)
            if name in _CLUSTER:
                raise ConfigError(f"{name} is for {EMBEDDED}:// addresses alone")
            raise ConfigError(_unknown("a name" if secret else repr(name), name, known))
        if name in chosen:
            raise ConfigError(f"{name} is twice in the address")
        chosen[name] = _check_text(name, known[name], value, _IN_QUERY)
    return {name: value for name, value in chosen.items() if name in options_of(kind)}


def _from_keywords(
    kind: type[ClientConfig], options: Mapping[str, object], source: str = ""
) -> dict[str, Any]:
    known = options_of(kind)
    found = f" (from {source})" if source else ""
    for name in options:
        if name in known:
            continue
        if name in _EVERY:
            owners = " and ".join(each.__name__ for each in KINDS if name in options_of(each))
            raise ConfigError(f"{name} is an option of {owners}, not of {kind.__name__}{found}")
        raise ConfigError(_unknown(repr(name), str(name), known) + found)
    return {name: known[name].check(name, value, source) for name, value in options.items()}


def _check_text(name: str, option: Option, value: str, source: str) -> object:
    if option.kind is Kind.OBJECT:
        raise ConfigError(f"{name}, from {source}, can only be given as a keyword: it is an object")
    return option.check(name, value, source)


def _check_tls(endpoint: Endpoint, config: ClientConfig) -> None:
    if config.tls_v1:
        return
    if endpoint.tls:
        raise ConfigError(f"{endpoint.scheme}:// asks for TLS and tls_v1=False refuses it")
    given = [name for name in (*TLS_MATERIAL, "tls_config") if getattr(config, name)]
    if given:
        # Otherwise it would be plain text although certificates are given.
        raise ConfigError(f"{given[0]} is set and TLS is not: use an nsqs:// address or tls_v1")


def _unknown(shown: str, name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"unknown option {shown}" + (f": did you mean {near[0]}?" if near else "")


def _check_variables(environ: Mapping[str, str], *, refuse: bool) -> None:
    """Refuse a misspelt option, warn of an unknown one.

    The environment is shared: a variable that resembles no option may be of another program, or
    an option of another version, and must not end this one.
    """
    known = {"url", *_EVERY}
    for name in environ:
        option = name.removeprefix(PREFIX).lower()
        if not name.startswith(PREFIX) or name.startswith(_OTHERS) or name in map(variable, known):
            continue
        near = difflib.get_close_matches(option, known, n=1)
        hint = f": did you mean {variable(near[0])}?" if near else ""
        if refuse and difflib.get_close_matches(option, known, n=1, cutoff=_MISSPELT):
            raise ConfigError(f"unknown option {name} in the environment{hint}")
        # Four up: the caller of the client that called resolve().
        warnings.warn(f"unknown option {name} in the environment{hint}", UserWarning, stacklevel=4)
