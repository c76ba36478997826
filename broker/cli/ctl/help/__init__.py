"""The help of `ctl`: what commands there are, and what each does."""
