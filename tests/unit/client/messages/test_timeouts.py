"""What was not answered in time is counted once, told, and a reason not to be well for a while."""

from __future__ import annotations

import logging

import pytest

from nsqsmart.client.messages import checked_out as timeouts_module
from nsqsmart.client.messages.checked_out import Timeouts
from tests.unit.client.doubles import Source, expire, message_of


@pytest.fixture
def source() -> Source:
    return Source()


def late(source: Source):
    message = message_of(source, attempts=3)
    expire(message)
    return message


def test_each_is_counted_once_and_the_first_is_told(source, caplog):
    timeouts = Timeouts()
    messages = [late(source) for _ in range(4)]
    for message in [*messages, *messages]:
        timeouts.note(message)
    assert timeouts.count == 4
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "was not answered in time" in record.getMessage()
    log_fields = {name: value for name, value in vars(record).items() if name.startswith("nsq_")}
    assert log_fields == {
        "nsq_topic": "t",
        "nsq_channel": "c",
        "nsq_partition": 3,
        "nsq_nsqd": "a:4150",
        "nsq_attempts": 3,
    }


def test_only_what_the_server_has_given_up_on_is_noted(source):
    timeouts = Timeouts()
    answered, fine, lost = late(source), message_of(source), late(Source())
    answered._answer = True
    lost._subscription.live = False
    timeouts.look([answered, fine, lost])
    assert timeouts.count == 0
    timeouts.look([late(source)])
    assert timeouts.count == 1


def test_it_is_a_reason_not_to_be_well_for_a_while(source, monkeypatch):
    now = 1000.0
    monkeypatch.setattr(timeouts_module, "monotonic", lambda: now)
    timeouts = Timeouts()
    source.msg_timeout = 45.0
    assert timeouts.reason([message_of(source)]) is None
    assert "1 so far" in timeouts.reason([late(source)])
    # The next one may time out as late as this.
    now += 89
    assert "1 so far" in timeouts.reason([])
    now += 2
    assert timeouts.reason([]) is None
