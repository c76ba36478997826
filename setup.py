"""Build steps that pyproject.toml cannot express: the libraries of the management page.

A wheel, an sdist and an editable install get them in `broker/management/page/static/vendor/`
(`broker.management.page.vendor` says which, and from where).
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = Path(__file__).parent


def _fill(*, is_needed: bool) -> None:
    """Fill `static/vendor/`.

    Args:
        is_needed: Without the files nothing is made: a wheel has its page. A checkout may do
            without; its nodes say what is missing.

    Raises:
        SystemExit: A file is missing and cannot be had.
    """
    path = ROOT / "broker" / "management" / "page" / "vendor.py"
    spec = importlib.util.spec_from_file_location("page_vendor", path)
    assert spec is not None
    assert spec.loader is not None
    vendor = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = vendor
    spec.loader.exec_module(vendor)
    try:
        vendor.fill()
    except vendor.VendorError as error:
        if is_needed:
            sys.exit(str(error))
        print(error, file=sys.stderr)  # noqa: T201 - pip shows it with --verbose


class BuildPy(build_py):
    """Copies the packages, into a wheel or for an editable install."""

    def run(self) -> None:
        """Run the command."""
        _fill(is_needed=not self.editable_mode)
        super().run()


class Sdist(sdist):
    """Makes the sdist."""

    def run(self) -> None:
        """Run the command."""
        _fill(is_needed=True)
        super().run()


setup(cmdclass={"build_py": BuildPy, "sdist": Sdist})
