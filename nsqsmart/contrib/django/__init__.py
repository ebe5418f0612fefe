"""nsqsmart in a Django project: publish at the commit, consume with ``manage.py nsq_consume``.

::

    INSTALLED_APPS = [..., "nsqsmart.contrib.django"]
    NSQSMART = {"default": {"URL": "nsq+lookupd://l1:4161", "OPTIONS": {"publish_timeout": 3}}}

    from nsqsmart.contrib.django import handler, producers, publish

    publish("orders", body, key=order.customer_id)    # when the transaction commits
    producers["default"].publish("log", line)         # at once, with the plain Producer

    @handler("orders", "billing")                     # in an app's nsq.py
    def bill(message): ...

Nothing starts when this is imported, or when the app is ready: a producer is made on first use.
"""

from nsqsmart.contrib.django.conf import producers
from nsqsmart.contrib.django.handlers import handler
from nsqsmart.contrib.django.publishing import apublish, counts, publish
from nsqsmart.contrib.django.signals import publish_failed

__all__ = ["apublish", "counts", "handler", "producers", "publish", "publish_failed"]
