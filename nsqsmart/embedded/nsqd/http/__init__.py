"""The HTTP interface of nsqd, in the envelope of each dialect."""
