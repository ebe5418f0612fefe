"""How a Cluster of each dialect is put together."""
