"""Sockets, HTTP and flags: what every server here stands on."""
