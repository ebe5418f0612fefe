"""Helpers for the tests of applications, and for those of nsqsmart itself.

``plugin`` has the fixtures that pytest finds, ``recording`` a producer that sends nothing,
``proxy`` a TCP proxy that does harm, ``history`` the judge of what was published and consumed.
What each test sees of a cluster is in :mod:`nsqsmart.embedded`.
"""
