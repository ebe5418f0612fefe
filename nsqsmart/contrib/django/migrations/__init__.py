"""Tables of the outbox."""
