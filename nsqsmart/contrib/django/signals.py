"""Signals."""

from __future__ import annotations

from django.dispatch import Signal

publish_failed = Signal()
"""A message that waited for a commit, or in the outbox, was not published and will not be.

Sent with ``sender`` the alias (a str), ``topic``, ``body``, ``arguments`` (those of publish(), a
dict) and ``error``. What a receiver raises is logged.
"""
