"""What is particular to streams: super streams and taps."""
