"""One nsqlookupd: who has what, told by nsqds and asked by clients."""
