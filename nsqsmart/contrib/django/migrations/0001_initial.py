"""The outbox."""

from __future__ import annotations

from typing import Any

from django.db import migrations, models


class Migration(migrations.Migration):
    """Messages, and the order groups (column ``lane``) that relays own."""

    initial = True

    dependencies: list[Any] = []

    operations = [
        migrations.CreateModel(
            name="OutboxLane",
            fields=[
                ("lane", models.PositiveSmallIntegerField(primary_key=True, serialize=False)),
                ("holder", models.CharField(blank=True, default="", max_length=40)),
                ("held_until", models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="OutboxMessage",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("alias", models.CharField(max_length=100)),
                ("topic", models.CharField(max_length=80)),
                ("body", models.BinaryField()),
                ("arguments", models.JSONField(default=dict)),
                ("lane", models.PositiveSmallIntegerField()),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("refused", models.BooleanField(default=False)),
                ("last_error", models.CharField(blank=True, default="", max_length=500)),
            ],
            options={
                "verbose_name": "outbox message",
                "indexes": [
                    models.Index(fields=["refused", "lane", "id"], name="nsqsmart_outbox_lane")
                ],
            },
        ),
    ]
