"""Write docs/compatibility.md; `--missing` prints the rows that no test names."""

from __future__ import annotations

import sys

from tests.compatibility.page import PAGE, who_proves, write_page
from tests.compatibility.rows import ROWS

if __name__ == "__main__":
    if "--missing" in sys.argv:
        known = who_proves()
        print("\n".join(row.key for row in ROWS if not row.later and row.key not in known))
    else:
        PAGE.write_text(write_page())
