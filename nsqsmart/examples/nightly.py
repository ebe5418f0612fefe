"""A cron job: publish a report, and end with what is true of it.

Exit code 0 when it is stored, 75 when the next run should try again, 1 when a person has to look.
"""

import sys

import nsqsmart
from nsqsmart.examples.shared import address

TRY_AGAIN = 75


def act_on(error: nsqsmart.PublishError) -> int:
    """The exit code, after saying what happened in one line."""
    print(f"{error.outcome} after {len(error.attempts)} attempts: {error.hint}", file=sys.stderr)
    if error.outcome == nsqsmart.Outcome.UNCERTAIN:
        # It may be stored. The report has an id, so its reader can tell a repeat.
        return TRY_AGAIN
    return TRY_AGAIN if error.retryable else 1


def main() -> int:
    """One message, within ten seconds, whatever the cluster does."""
    report = {"id": "2026-03-01", "sold": 41}
    try:
        with nsqsmart.Producer(address(), publish_timeout=10) as producer:
            producer.publish_json("example-reports", report)
    except nsqsmart.PublishError as error:
        return act_on(error)
    print("stored")
    return 0


if __name__ == "__main__":
    sys.exit(main())
