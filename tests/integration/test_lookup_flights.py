"""Many calls that need one topology look it up once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from time import monotonic

import nsqsmart
from nsqsmart.embedded import Cluster, faults
from tests.helpers import eventually

CROWD, DISTANCE = 8, 0.01


def test_nobody_asks_while_another_waits_for_the_answer():
    with Cluster(lookupds=1) as cluster, ThreadPoolExecutor(CROWD + 1) as pool:
        cluster.create_topic("t")
        cluster.create_channel("t", "c")
        slow = faults.on("/lookup", times=CROWD + 1).delay(0.3)
        cluster.faults.add(slow)
        with nsqsmart.Producer(cluster.url, lookupd_min_refresh_interval=DISTANCE) as producer:
            calls = [pool.submit(producer.publish, "t", b"first")]
            eventually(lambda: slow.acted)
            # Its time is over: only a caller that waits for the answer keeps others from asking.
            asked = monotonic()
            eventually(lambda: monotonic() > asked + DISTANCE)
            calls += [pool.submit(producer.publish, "t", b"%d" % each) for each in range(CROWD)]
            assert {call.result(10).attempts for call in calls} == {1}
        assert slow.acted == 1
