"""Integrations, each with the extra of its name."""
