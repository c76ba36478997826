"""`python -m pipeline`, which `warrenmq pipeline` starts."""

import sys

from pipeline.command.main import main

if __name__ == "__main__":
    sys.exit(main())
