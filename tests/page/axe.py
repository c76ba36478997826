"""axe-core on what a window shows: what a screen reader or weak eyes would stumble over."""

from __future__ import annotations

import importlib.resources
from typing import Any

import pytest

SERIOUS = {"serious", "critical"}
"""axe's impacts that a page must not have; "moderate" and "minor" are left."""

_RUN = """async () => {
    // What watches sizes runs after a frame's callbacks: a task later it has seen them.
    const frame = () => new Promise((seen) => requestAnimationFrame(() => setTimeout(seen)));
    await frame();
    await frame();
    const found = await axe.run(document, { resultTypes: ["violations"] });
    return found.violations.map(({ id, impact, help, nodes }) => ({
        id, impact, help,
        nodes: nodes.map(({ target, failureSummary, html }) => (
            { target: target.join(" "), failureSummary, html })),
    }));
}"""


def source() -> str:
    """axe-core's script, from the wheel that carries it."""
    pytest.importorskip("axe_playwright_python", reason="needs axe-playwright-python (extra dev)")
    return (importlib.resources.files("axe_playwright_python") / "axe.min.js").read_text("utf-8")


def faults(page: Any, script: str) -> list[str]:
    """What axe finds serious or critical, a line for each element.

    The page's Content-Security-Policy stays: a debugger's scripts are none of the page's.

    Args:
        page: Playwright's.
        script: What `source` returned.
    """
    if not page.evaluate("typeof axe === 'object'"):
        page.evaluate(script)
    found = []
    for each in page.evaluate(_RUN):
        if each["impact"] in SERIOUS:
            found += [
                f"{each['id']} ({each['impact']}): {node['target']} {node['html'][:160]}"
                f" — {' '.join(node['failureSummary'].split())}"
                for node in each["nodes"]
            ]
    return found
