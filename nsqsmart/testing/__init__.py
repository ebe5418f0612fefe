"""For tests of those who use nsqsmart, and our own."""
