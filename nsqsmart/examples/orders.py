"""Publish three orders, then consume them with four threads."""

import logging

import nsqsmart
from nsqsmart.examples.shared import address

ORDERS = [{"id": 1, "fruit": "apple"}, {"id": 2, "fruit": "pear"}, {"id": 3, "fruit": "plum"}]


def publish() -> None:
    """One Producer serves the whole process: threads share it."""
    with nsqsmart.Producer(address()) as producer:
        for order in ORDERS:
            producer.publish_json("example-orders", order)


def consume() -> None:
    """Returning finishes a message, raising brings it again."""
    seen: set[bytes] = set()

    def handle(message: nsqsmart.Message) -> None:
        print(message.body.decode(), "at attempt", message.attempts)
        seen.add(message.body)
        if len(seen) == len(ORDERS):
            consumer.close()  # without this line it runs until Ctrl-C

    consumer = nsqsmart.Consumer("example-orders", "billing", handle, address=address(), workers=4)
    report = consumer.run()
    print(report.finished, "finished")


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    publish()
    consume()
