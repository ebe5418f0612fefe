"""Where the examples find their cluster."""

import os


def address(partitions: int = 1) -> str:
    """That of ``NSQSMART_URL``, or a cluster inside this process."""
    return os.environ.get("NSQSMART_URL") or f"nsq+embedded://examples?partitions={partitions}"
