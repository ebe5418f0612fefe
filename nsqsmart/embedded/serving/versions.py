"""What the servers call themselves."""

from __future__ import annotations

from nsqsmart.names import Dialect

VERSIONS = {Dialect.ORIGINAL: "1.3.0", Dialect.REDESIGNED: "0.3.7-HA.1.13.0"}
"""The versions whose behaviour is played."""
