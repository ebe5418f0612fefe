"""Short programs to copy from: ``python -m nsqsmart.examples.orders``.

``orders`` publishes and consumes, ``ordered`` keeps the order of a key, ``batches`` stores many at
once, ``dead_letters`` gives up and keeps, ``nightly`` is for cron and acts on what is true of a
failed publish, ``traced`` finds a message again, ``pulling`` takes what is there and ends.

Each runs on a cluster inside the process. With ``NSQSMART_URL`` they run on yours, and make the
topics that they use.
"""
