"""nsqsmart: publish to and consume from NSQ with plain blocking Python."""

from nsqsmart._version import __version__

__all__ = ["__version__"]
