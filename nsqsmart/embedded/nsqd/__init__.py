"""One nsqd: a node, the topics it has, and how it is reached.

::

    server       its ports, and the node behind them
    node         what its connections share
    hosting      which topics it has, as shards
    shard        a partition with its lock and leader
    tcp/ http/   the protocols; disk/ what it keeps
    offsets      where a channel may be told to begin
    refusals     why a command was not carried out
    authority    asks auth servers
    options      what it can be told
    program      nsqd as a program; telling: its words to lookup daemons

One thread of the loop accepts for ``server``; each connection has a thread, in ``tcp`` or ``http``.
"""
