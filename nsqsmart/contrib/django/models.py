"""The outbox: messages as rows of the transaction that they tell about."""

from __future__ import annotations

import zlib

from django.db import models

from nsqsmart.contrib.shared.sending import Letter

LANES = 16


class OutboxMessage(models.Model):
    """A message that ``manage.py nsq_relay`` publishes after the commit, and then deletes.

    Messages of one key have one ``lane`` (an order group): it is published in the order of the ids.
    """

    id = models.BigAutoField(primary_key=True)
    alias = models.CharField(max_length=100)
    topic = models.CharField(max_length=80)
    body = models.BinaryField()
    arguments = models.JSONField(default=dict)
    lane = models.PositiveSmallIntegerField()
    created_at = models.DateTimeField(auto_now_add=True)
    refused = models.BooleanField(default=False)
    """The servers will never take it: it stays until a person has looked at it."""
    last_error = models.CharField(max_length=500, blank=True, default="")

    class Meta:
        """Read by lane, in order."""

        indexes = (models.Index(fields=["refused", "lane", "id"], name="nsqsmart_outbox_lane"),)
        verbose_name = "outbox message"

    def __str__(self) -> str:
        return f"{self.topic} {self.arguments.get('key', '')} {len(self.body)} bytes"

    @classmethod
    def keep(cls, letter: Letter, database: str) -> None:
        """Write *letter* down in the transaction of *database*."""
        arguments = dict(letter.arguments)
        if isinstance(letter.key, bytes):
            arguments["key"] = {"hex": letter.key.hex()}
        cls.objects.using(database).create(
            alias=letter.alias,
            topic=letter.topic,
            body=letter.body,
            arguments=arguments,
            lane=lane_of(letter),
        )

    def letter(self) -> Letter:
        """Return the letter that :meth:`keep` wrote."""
        arguments = dict(self.arguments)
        if isinstance(arguments.get("key"), dict):
            arguments["key"] = bytes.fromhex(arguments["key"]["hex"])
        return Letter(self.topic, bytes(self.body), self.alias, arguments)


class OutboxLane(models.Model):
    """Which relay owns an order group: by a lock on the row, or by a lease without row locks."""

    lane = models.PositiveSmallIntegerField(primary_key=True)
    holder = models.CharField(max_length=40, blank=True, default="")
    held_until = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"lane {self.lane}"


def lane_of(letter: Letter) -> int:
    """The order group of its key or partition; any group for a letter without either."""
    place = letter.key if letter.key is not None else letter.partition
    text = repr((letter.alias, letter.topic, place)).encode()
    return zlib.crc32(text if place is not None else letter.body) % LANES
