"""The TCP protocol of nsqd, one connection at a time."""
