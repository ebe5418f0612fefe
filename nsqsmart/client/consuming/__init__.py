"""The Consumer.

``consumer`` is the public class; ``run`` blocks until consumers have ended. ``runtime`` is all that
lives from start() to close(). Readers hand messages to ``workers`` (threads that run the handler),
``batch_workers`` or ``poll`` (the application takes them). ``rdy_controller`` says how many each
connection may send; ``timers`` is what the ticker's thread does again and again; ``metrics`` are
counts.
"""
