"""One nsqlookupd: who has what, told by nsqds and asked by clients.

::

    server          its ports; a thread for each nsqd, which speaks ``registering``
    registrations   what nsqds have told it
    original        the HTTP paths of each dialect
    redesigned
    answers         what a coordinated cluster says, for ``redesigned``
    operators       what operators do through it, for ``redesigned``; admin carries it out
    program         nsqlookupd as a program
"""
