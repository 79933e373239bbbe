"""Tables of tasks as data frames of pandas or polars."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from typing import Any

from rp_client.inspect.rows import FLAG, INTEGER, NUMBER, TEXT, TIME
from rp_client.inspect.table import Columns, Table

LIBRARIES = 'pandas', 'polars'


def frame(table: Table, library: str | None = None) -> Any:
    """Return a table as a data frame; see `rp_client.handles.tabular.Tabular.to_frame`."""
    module = _imported(library)
    if module.__name__ == 'polars':
        return module.concat([polars_page(module, table, page) for page in table.pages])
    return module.concat([_pandas_page(module, table, page) for page in table.pages], ignore_index=True)


def nanoseconds(times: Iterable[float | None]) -> list[int | None]:
    """Return times as whole microseconds, which is what they are exact to, in nanoseconds since 1970."""
    return [None if time is None else round(time * 1e6) * 1000 for time in times]


def _imported(library: str | None) -> Any:
    if library not in (None, *LIBRARIES):
        raise ValueError(f'library is {library!r}: allowed are {" and ".join(map(repr, LIBRARIES))}')
    for name in [library] if library else LIBRARIES:
        with suppress(ModuleNotFoundError):
            return import_module(name)
    raise ImportError(f'a table of tasks is a data frame of pandas or polars, and {library or "neither"} is not '
                      f'installed: pip install {library or "pandas, or pip install polars"}', name=library)


def _pandas_page(pandas: Any, table: Table, page: Columns) -> Any:
    types = {TEXT: 'string', INTEGER: 'Int64', NUMBER: 'float64', FLAG: 'boolean', TIME: 'datetime64[ns, UTC]'}

    def column(values: list[Any], kind: str) -> Any:
        values = [pandas.NaT if each is None else each for each in nanoseconds(values)] if kind == TIME else values
        return pandas.Series(values, dtype=types[kind])
    return pandas.DataFrame({name: column(values, table.kinds[name]) for name, values in page.items()})


def polars_page(polars: Any, table: Table, page: Columns) -> Any:
    """Return a page as a data frame of polars."""
    types = {TEXT: polars.String, INTEGER: polars.Int64, NUMBER: polars.Float64, FLAG: polars.Boolean}

    def column(name: str, values: list[Any], kind: str) -> Any:
        if kind == TIME:
            return polars.Series(name, nanoseconds(values), polars.Int64).cast(polars.Datetime('ns', 'UTC'))
        return polars.Series(name, values, types[kind])
    return polars.DataFrame([column(name, values, table.kinds[name]) for name, values in page.items()])
