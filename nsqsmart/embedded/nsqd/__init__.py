"""One nsqd: a node, the topics it has, and how it is reached."""
