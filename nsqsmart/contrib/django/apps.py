"""The Django app."""

from __future__ import annotations

from django.apps import AppConfig
from django.core.signals import setting_changed


class NsqsmartConfig(AppConfig):
    """Registers checks, and forgets producers when a test overrides their settings."""

    name = "nsqsmart.contrib.django"
    label = "nsqsmart"
    verbose_name = "NSQ"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Nothing is opened and no thread starts: this runs in every command, twice in some."""
        from nsqsmart.contrib.django import checks, conf  # noqa: PLC0415 - apps are ready now

        checks.register_all()
        setting_changed.connect(conf.on_setting_changed, dispatch_uid="nsqsmart")
