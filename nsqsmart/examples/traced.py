"""Find one message again, from publish to FIN: for a redesigned cluster."""

import logging

import nsqsmart
from nsqsmart.examples.shared import address


class Show(logging.Handler):
    """One line for each step in the life of a message; your log has it as ``record.nsq_trace``."""

    def emit(self, record: logging.LogRecord) -> None:
        """Called by logging."""
        step = vars(record)["nsq_trace"]
        print(step["event"], "trace id", step["nsq_trace_id"])


def main() -> None:
    """The same trace id is in the log of the producer, of the consumer and of the servers."""
    nsqsmart.tracing.enable("example-traced")

    def handle(message: nsqsmart.Message) -> None:
        print("got", message.body.decode())
        consumer.close()

    with nsqsmart.Producer(address()) as producer:
        receipt = producer.publish("example-traced", b"two apples", trace_id=7)
    consumer = nsqsmart.Consumer("example-traced", "billing", handle, address=address())
    consumer.run()
    print("stored in partition", receipt.partition)


if __name__ == "__main__":
    steps = logging.getLogger("nsqsmart.trace")
    steps.setLevel(logging.INFO)
    steps.addHandler(Show())
    main()
