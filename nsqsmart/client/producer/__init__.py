"""The Producer. It keeps no thread for publish().

``producer`` is the public class. ``runtime`` is what it runs on in one process: made on first use,
and anew in a forked child. ``default`` is the producer that ``nsqsmart.publish`` uses.
"""
