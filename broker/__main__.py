"""`python -m broker` is `warrenmq`."""

from __future__ import annotations

from broker.cli.main import main

if __name__ == "__main__":
    main()
