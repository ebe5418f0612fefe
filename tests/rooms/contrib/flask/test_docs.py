"""docs/flask.md is true: its files and commands, in an empty folder."""

from __future__ import annotations

import pytest

from nsqsmart.embedded import Cluster
from tests.rooms.contrib.pages import walk


@pytest.mark.long
@pytest.mark.timeout(180)
def test_the_page_can_be_walked(tmp_path):
    with Cluster(auto_create=True, lookupds=1) as cluster:
        assert walk("flask.md", tmp_path, cluster.url) > 4
