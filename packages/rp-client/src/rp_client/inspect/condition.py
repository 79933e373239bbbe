"""Conditions on tasks, such as `cpu > 3 and exit_code == 1`, which can do nothing but compare what a task has.

The syntax is that of Python. A condition is parsed and checked once, and evaluated by a walk over its tree: it has no
calls, attributes or subscripts. An ordering of what is not known is false.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Collection, Mapping
from itertools import pairwise
from typing import Any

UNITS: Mapping[str, float] = {
    'KB': 1e3, 'MB': 1e6, 'GB': 1e9, 'TB': 1e12, 'MINUTE': 60.0, 'HOUR': 3600.0, 'DAY': 86400.0}
"""Names of numbers in conditions: bytes and seconds."""

MAX_CHARS = 1000
MAX_DEPTH = 50

_OPERATORS: Mapping[type[ast.AST], Any] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq,
    ast.NotEq: operator.ne, ast.Is: operator.is_, ast.IsNot: operator.is_not, ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b, ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv}
_EQUALITIES = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot)
_ALLOWED = (ast.Expression, ast.BoolOp, ast.boolop, ast.UnaryOp, ast.Not, ast.USub, ast.Compare, ast.BinOp, ast.Name,
            ast.Load, ast.Constant, ast.Tuple, ast.List, *_OPERATORS)


class Condition:
    """A condition on the items of a mapping.

    Args:
        text: The condition.
        names: The items that it may use.

    Raises:
        ValueError: It is no condition, or uses another name.
    """

    def __init__(self, text: str, names: Collection[str]) -> None:
        try:
            if len(text) > MAX_CHARS:
                raise ValueError(f'it has more than {MAX_CHARS} characters')
            self._tree = ast.parse(text.strip(), mode='eval').body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise ValueError(f'{text!r:.200} is no condition: {error}') from None
        self._check(self._tree, names, MAX_DEPTH)

    def __call__(self, items: Mapping[str, Any]) -> bool:
        """Return whether the items meet the condition.

        Raises:
            ValueError: It compares what cannot be compared, such as a text with a number.
        """
        try:
            return bool(self._value(self._tree, items))
        except (TypeError, ZeroDivisionError, OverflowError) as error:
            raise ValueError(f'the condition cannot be evaluated: {error}') from None

    def _check(self, node: ast.AST, names: Collection[str], depth: int) -> None:
        if not isinstance(node, _ALLOWED) or not depth:
            raise ValueError(f'a condition has names, numbers, texts, comparisons, + - * /, and, or, not; '
                             f'{type(node).__name__} is not allowed')
        if isinstance(node, ast.Name) and node.id not in names and node.id not in UNITS:
            raise ValueError(f'{node.id} is unknown; a condition may use {", ".join([*names, *UNITS])}')
        for child in ast.iter_child_nodes(node):
            self._check(child, names, depth - 1)

    def _value(self, node: ast.expr, items: Mapping[str, Any]) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return items.get(node.id) if node.id not in UNITS else UNITS[node.id]
        if isinstance(node, ast.BoolOp):
            values = (self._value(each, items) for each in node.values)
            return all(values) if isinstance(node.op, ast.And) else any(values)
        if isinstance(node, ast.UnaryOp):
            value = self._value(node.operand, items)
            return not value if isinstance(node.op, ast.Not) else None if value is None else -value
        if isinstance(node, ast.BinOp):
            pair = self._value(node.left, items), self._value(node.right, items)
            if not all(isinstance(each, int | float | None) for each in pair):
                raise TypeError('only numbers are added, multiplied and divided')
            return None if None in pair else _OPERATORS[type(node.op)](*pair)
        if isinstance(node, ast.Compare):
            sides = [self._value(each, items) for each in (node.left, *node.comparators)]
            return all((isinstance(how, _EQUALITIES) or None not in pair) and _OPERATORS[type(how)](*pair)
                       for how, pair in zip(node.ops, pairwise(sides), strict=True))
        assert isinstance(node, ast.Tuple | ast.List)
        return [self._value(each, items) for each in node.elts]
