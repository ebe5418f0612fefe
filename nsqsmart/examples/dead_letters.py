"""A message that fails three times goes to a topic of its own, and a person looks at it there."""

import logging

import nsqsmart
from nsqsmart.examples.shared import address

TOPIC, DEAD = "example-letters", "example-letters.dead"


def charge(message: nsqsmart.Message) -> None:
    """Fail for what is no number, however often it comes."""
    print("charged", int(message.body))


def consume() -> None:
    """The dead letter is stored before the message is finished, so it is never in neither topic."""
    consumer = nsqsmart.Consumer(
        TOPIC,
        "billing",
        charge,
        address=address(),
        max_attempts=3,
        dead_letter_topic=DEAD,
        default_requeue_delay=0,  # the default is 90 s times the attempts
        backoff_multiplier=0.01,
    )
    nsqsmart.run(consumer, until=lambda: consumer.stats().given_up == 1)


def look() -> None:
    """What was given up. Leaving the block finishes it."""
    with nsqsmart.Consumer(DEAD, "people", address=address()) as consumer:
        for message in consumer.poll(timeout=10):
            with message:
                print("given up:", message.body.decode())


if __name__ == "__main__":
    logging.basicConfig(level=logging.CRITICAL)  # it would tell of each failure, with a traceback
    with nsqsmart.Producer(address()) as shop:
        for body in (b"12", b"twelve"):
            shop.publish(TOPIC, body)
    consume()
    look()
