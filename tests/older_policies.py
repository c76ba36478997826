"""A real node that stores what 0.1.0 stored: `python -m tests.older_policies server ...`.

All of it is the broker's own but the check of policies: federation's keys pass, as they did.
"""

from __future__ import annotations

from broker.cli.main import main
from broker.metadata import policy_keys


def _takes_federation(definition: object, *, operator: bool) -> None:
    assert isinstance(definition, dict)
    assert not operator


if __name__ == "__main__":
    policy_keys.validate_definition = _takes_federation  # type: ignore[assignment]
    main()
