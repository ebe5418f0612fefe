"""Store many messages at once: one transaction of a database for a hundred of them."""

import logging
import sqlite3

import nsqsmart
from nsqsmart.examples.shared import address

COUNT = 250


def main() -> None:
    """A message is finished when its batch has been committed, and not before."""
    database = sqlite3.connect(":memory:", check_same_thread=False)
    # A message may come twice: the primary key makes the repeat harmless.
    database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    with nsqsmart.Producer(address()) as producer:
        producer.publish_many("example-batches", [b"%d" % number for number in range(COUNT)])

    def store(batch: list[nsqsmart.Message]) -> None:
        rows = [(int(message.body),) for message in batch]
        with database:  # commits, or rolls back and raises, and then all of them come again
            database.executemany("INSERT OR IGNORE INTO orders VALUES (?)", rows)
        (stored,) = database.execute("SELECT count(*) FROM orders").fetchone()
        if stored == COUNT:
            consumer.close()

    consumer = nsqsmart.Consumer(
        "example-batches", "store", batch_handler=store, address=address(), workers=1
    )
    report = consumer.run()
    print(report.finished, "finished,", *database.execute("SELECT count(*) FROM orders"), "stored")


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    main()
