"""The spool: messages that cannot be sent now wait on the disk. No thread of its own.

``spool`` decides, in the thread of the caller: send, or keep. ``sending`` publishes what waits,
before anything new of its topic. ``storage`` is the files: segments of records, progress, locks.
"""
