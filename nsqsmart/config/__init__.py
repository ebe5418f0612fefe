"""Every option of every client, and the addresses clients go to.

One table (the dataclasses of ``common`` and ``roles``) is the only source of names, defaults,
ranges and help texts. An option has one spelling, in four places::

    Producer(..., dial_timeout=2)                  a keyword
    nsq+lookupd://l1:4161?dial_timeout=2           the query of the address
    NSQSMART_DIAL_TIMEOUT=2                        the environment
    --dial-timeout 2                               a flag of the command, which becomes a keyword

and the first of these that has it wins; then comes the default.
"""

from nsqsmart.config.addresses import Endpoint
from nsqsmart.config.common import ClientConfig, EmbeddedConfig
from nsqsmart.config.keywords import (
    AdminOptions,
    ClientOptions,
    ConsumerOptions,
    ProducerOptions,
)
from nsqsmart.config.resolve import KINDS, embedded_config, read_options, resolve, variable
from nsqsmart.config.roles import AdminConfig, ConsumerConfig, ProducerConfig
from nsqsmart.config.table import Option, options_of
from nsqsmart.config.values import Kind

__all__ = [
    "KINDS",
    "AdminConfig",
    "AdminOptions",
    "ClientConfig",
    "ClientOptions",
    "ConsumerConfig",
    "ConsumerOptions",
    "EmbeddedConfig",
    "Endpoint",
    "Kind",
    "Option",
    "ProducerConfig",
    "ProducerOptions",
    "embedded_config",
    "options_of",
    "read_options",
    "resolve",
    "variable",
]
