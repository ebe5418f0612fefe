"""A job that takes what is there, stores it, and ends."""

import logging

import nsqsmart
from nsqsmart.examples.shared import address


def main() -> None:
    """Nothing runs between two calls: no thread, no handler."""
    with nsqsmart.Producer(address()) as producer:
        producer.publish_many("example-pulling", [b"%d" % number for number in range(1000)])

    stored: set[bytes] = set()
    with nsqsmart.Consumer("example-pulling", "archive", address=address()) as consumer:
        # A quiet second is the end of it.
        while messages := consumer.poll(max_messages=200, timeout=1):
            stored.update(message.body for message in messages)
            for message in messages:
                message.finish()
    print(len(stored), "stored")


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    main()
