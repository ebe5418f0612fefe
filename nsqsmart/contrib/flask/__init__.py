"""nsqsmart in a Flask application: a producer per app, handlers, and ``flask nsq consume``.

::

    nsq = NSQ()                                   # extensions.py

    def create_app():
        app = Flask(__name__)
        app.config["NSQSMART_URL"] = "nsq+lookupd://l1:4161"
        nsq.init_app(app)
        return app

    nsq.publish("orders", body, key="customer-7")             # in a view

    @nsq.handler("orders", "billing", workers=4)
    def bill(message): ...

``init_app`` opens nothing and starts nothing: a producer is made on first use.
"""

from nsqsmart.contrib.flask.extension import NSQ
from nsqsmart.contrib.flask.sessions import publish_failed

__all__ = ["NSQ", "publish_failed"]
