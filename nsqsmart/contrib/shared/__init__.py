"""What the integrations with web frameworks have in common; no other room uses it.

::

    declaring    handlers as a project declares them
    running      runs those handlers in a process until it is to end
    fitting      which servers these are, and what of the declared use they cannot do
    settings     what a project says of its servers and clients; makes producers of it
    sending      letters, which are published later, with few commands
    delivering   sends letters after their commit: counts each, logs those that were lost

``delivering`` calls ``sending``. The threads are those of the framework, and the workers of the
consumers that ``running`` starts.
"""
