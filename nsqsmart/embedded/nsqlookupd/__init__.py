"""One nsqlookupd: who has what, told by nsqds and asked by clients.

::

    server          its ports; a thread for each nsqd, which speaks ``registering``
    registrations   what nsqds have told it
    original        the HTTP paths of each dialect
    redesigned
    answers         what a coordinated cluster says, for ``redesigned``
    operators       what changes a cluster through it, for ``redesigned``
    seats           which daemon of a cluster leads
    program         nsqlookupd as a program
"""
