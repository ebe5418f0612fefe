"""One nsqlookupd: which nsqd has which topic, as the nsqds register and clients ask."""
