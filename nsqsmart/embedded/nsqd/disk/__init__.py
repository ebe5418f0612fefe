"""What a stand-in keeps from one life to the next."""
