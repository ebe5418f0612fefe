"""What belongs together has one key, and arrives in order: for a redesigned cluster."""

import logging
from collections import defaultdict

import nsqsmart
from nsqsmart.examples.shared import address

STEPS = ("ordered", "paid", "sent")
CUSTOMERS = ("anna", "bert", "cleo")


def prepare() -> None:
    """An operator does this once. A redesigned topic takes nothing before it has a channel."""
    admin = nsqsmart.Admin(address())
    if "example-ordered" not in admin.topics():
        admin.create_topic("example-ordered", partitions=2, ordered=True)
        admin.create_channel("example-ordered", "shipping")


def main() -> None:
    """Each customer's steps come one by one, different customers side by side."""
    with nsqsmart.Producer(address()) as producer:
        for step in STEPS:
            for customer in CUSTOMERS:
                producer.publish("example-ordered", f"{customer} {step}".encode(), key=customer)

    seen: dict[str, list[str]] = defaultdict(list)

    def handle(message: nsqsmart.Message) -> None:
        customer, step = message.body.decode().split()
        seen[customer].append(step)
        if sum(map(len, seen.values())) == len(STEPS) * len(CUSTOMERS):
            consumer.close()

    consumer = nsqsmart.Consumer("example-ordered", "shipping", handle, address=address())
    consumer.run()
    for customer in CUSTOMERS:
        print(customer, *seen[customer])


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    prepare()
    main()
