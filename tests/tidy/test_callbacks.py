"""The number of callables in constructors, and of partials, stays small.

Two objects that hold each other's methods as callables make a circle that no import shows: a reader
can't say who calls whom, and import-linter does not see it. What one object needs of another is a
protocol that says who the other is, a value that is returned, or an effect. The limits leave a
little room above what there is, and are to fall with it.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from tests.tidy.tree import ROOT, name, nodes_of, sources, tree_of

PARAMETERS_MAX = 45
"""Parameters of constructors that are callables."""

FIELDS_MAX = 35
"""Fields of dataclasses, named tuples and structs that are: tables, and who waits for an answer."""

PARTIALS_MAX = 30
"""Uses of `functools.partial`; a lambda that keeps what it was given is no better."""

_RECORDS = {"NamedTuple", "Struct"}


def _is_production(path: Path) -> bool:
    parts = path.relative_to(ROOT).parts
    return parts[0] in ("broker", "raft", "gm") and parts[1] != "wire"


@cache
def trees() -> dict[Path, ast.Module]:
    found = [path for path in sources() if _is_production(path)]
    return {path: tree_of(path) for path in found}


def names_in(node: ast.AST) -> set[str]:
    """All names in an expression; an annotation that is written as a text is read as one."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        node = ast.parse(node.value, mode="eval")
    walked = list(ast.walk(node))
    return {each.id for each in walked if isinstance(each, ast.Name)} | {
        each.attr for each in walked if isinstance(each, ast.Attribute)
    }


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def alias_of(statement: ast.stmt) -> tuple[str, ast.expr] | None:
    """`X = Callable[...]` and `X: TypeAlias = ...`: name and what it stands for."""
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        if isinstance(statement.value, ast.Subscript | ast.BinOp | ast.Name):
            return statement.targets[0].id, statement.value
        return None
    if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
        return None
    is_alias = "TypeAlias" in names_in(statement.annotation) and statement.value is not None
    return (statement.target.id, statement.value) if is_alias else None


@cache
def callable_names() -> dict[Path, set[str]]:
    """What stands for a callable in each module: `Callable`, and aliases of it."""
    known = {path: {"Callable"} for path in trees()}
    by_module = {module_of(path): names for path, names in known.items()}
    is_new = True
    while is_new:
        is_new = False
        for path, tree in trees().items():
            found = set()
            for each in tree.body:
                alias = alias_of(each)
                if alias is not None and names_in(alias[1]) & known[path]:
                    found.add(alias[0])
                elif isinstance(each, ast.ImportFrom) and each.module in by_module:
                    theirs = by_module[each.module]
                    found |= {a.asname or a.name for a in each.names if a.name in theirs}
            is_new |= not found <= known[path]
            known[path] |= found
    return known


def is_record(node: ast.ClassDef) -> bool:
    return any("dataclass" in names_in(each) for each in node.decorator_list) or any(
        names_in(each) & _RECORDS for each in node.bases
    )


def callables_of(node: ast.ClassDef, names: set[str]) -> tuple[list[str], list[str]]:
    """The parameters of a class's constructor, and its fields, that are callables."""
    parameters, fields = [], []
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and each.name == "__init__":
            all_of_it = [*each.args.posonlyargs, *each.args.args, *each.args.kwonlyargs]
            parameters += [
                f"{node.name}.{arg.arg}"
                for arg in all_of_it
                if arg.annotation is not None and names_in(arg.annotation) & names
            ]
        elif (
            isinstance(each, ast.AnnAssign)
            and is_record(node)
            and (names_in(each.annotation) & names)
        ):
            fields.append(f"{node.name}.{ast.unparse(each.target)}")
    return parameters, fields


@cache
def counted() -> tuple[list[str], list[str]]:
    parameters, fields = [], []
    for path in trees():
        for node in nodes_of(path):
            if isinstance(node, ast.ClassDef):
                found = callables_of(node, callable_names()[path])
                parameters += [f"{name(path)}: {each}" for each in found[0]]
                fields += [f"{name(path)}: {each}" for each in found[1]]
    return parameters, fields


def test_few_constructors_take_callables():
    """Callbacks hide circles: say by a protocol who the other is, or return a value."""
    parameters, _ = counted()
    assert len(parameters) <= PARAMETERS_MAX, parameters


def test_callables_do_not_hide_in_records():
    """A record full of callables is a constructor full of callables."""
    _, fields = counted()
    assert len(fields) <= FIELDS_MAX, fields


def test_few_partials_are_made():
    """No partial of the method one stands in: what is to be done later is a value with a name."""
    partials = [
        f"{name(path)}:{node.lineno}"
        for path in trees()
        for node in nodes_of(path)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name | ast.Attribute)
        and ast.unparse(node.func) in ("partial", "functools.partial")
    ]
    assert len(partials) <= PARTIALS_MAX, partials


def test_the_count_sees_what_is_written_in_other_ways():
    """Aliases, texts and options count; what only holds a class of such a name does not."""
    tree = ast.parse(
        "class A:\n"
        "    def __init__(self, a: 'Callable[[], None]', *, b: Done | None, c: list[Sends]): ...\n"
        "class B(NamedTuple):\n"
        "    done: Done\n"
        "    size: int\n"
    )
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    names = {"Callable", "Done"}
    assert callables_of(classes[0], names) == (["A.a", "A.b"], [])
    assert callables_of(classes[1], names) == ([], ["B.done"])
