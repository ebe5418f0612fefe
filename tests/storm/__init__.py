"""A storm: everything goes wrong by a script that a seed makes, and a history says what came of it.

``python -m tests.storm --seed N --minutes M`` runs one, on embedded servers or on real ones.

* ``notes``: the history, files of JSON lines that any number of processes write
* ``actors``, ``worker``, ``crew``: producers and consumers, in this process and in others
* ``faults``: the script, and who carries it out
* ``run``: one storm from its beginning to its end
* ``checker``: judges a history; ``table`` prints what it found
"""
