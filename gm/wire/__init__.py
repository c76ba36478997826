"""Ring messages as bytes: `convert` is written by hand, the rest generated from proto/."""
