"""Shared code of the integrations with web frameworks; private to them."""
