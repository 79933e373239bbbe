"""Tables of tasks as data frames of pandas or polars."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

from rp_client.inspect.table import FLAG, INTEGER, NUMBER, TEXT, TIME, Table

LIBRARIES = 'pandas', 'polars'


def frame(table: Table, library: str | None = None) -> Any:
    """Return a table as a data frame.

    Args:
        table: The table.
        library: `'pandas'` or `'polars'`; default: pandas if it is installed, otherwise polars.

    Raises:
        ImportError: The library is not installed, or neither is.
        ValueError: There is no such library.
    """
    module = _imported(library)
    return _MAKERS[module.__name__](module, table)


def nanoseconds(times: Iterable[float | None]) -> list[int | None]:
    """Return times as whole microseconds, which is what they are exact to, in nanoseconds since 1970."""
    return [None if time is None else round(time * 1e6) * 1000 for time in times]


def _imported(library: str | None) -> Any:
    if library not in (None, *LIBRARIES):
        raise ValueError(f'library is {library!r}: allowed are {" and ".join(map(repr, LIBRARIES))}')
    for name in [library] if library else LIBRARIES:
        try:
            return import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:   # it is there, but something that it needs is not
                raise
    if library:
        raise ImportError(f'{library} is not installed: pip install {library}', name=library)
    raise ImportError('a table of tasks is a data frame of pandas or polars, and neither is installed: '
                      'pip install pandas, or pip install polars', name=LIBRARIES[0])


def _of_pandas(pandas: Any, table: Table) -> Any:
    types = {TEXT: 'string', INTEGER: 'Int64', NUMBER: 'float64', FLAG: 'boolean', TIME: 'datetime64[ns, UTC]'}

    def column(values: list[Any], kind: str) -> Any:
        values = [pandas.NaT if each is None else each for each in nanoseconds(values)] if kind == TIME else values
        return pandas.Series(values, dtype=types[kind])
    parts = [pandas.DataFrame({name: column(values, table.kinds[name]) for name, values in page.items()})
             for page in table.pages]
    return pandas.concat(parts, ignore_index=True) if len(parts) > 1 else parts[0]


def _of_polars(polars: Any, table: Table) -> Any:
    return polars.concat([polars_page(polars, table, page) for page in table.pages])


def polars_page(polars: Any, table: Table, page: dict[str, list[Any]]) -> Any:
    """Return a page as a data frame of polars."""
    types = {TEXT: polars.String, INTEGER: polars.Int64, NUMBER: polars.Float64, FLAG: polars.Boolean}

    def column(name: str, values: list[Any], kind: str) -> Any:
        if kind == TIME:
            return polars.Series(name, nanoseconds(values), polars.Int64).cast(polars.Datetime('ns', 'UTC'))
        return polars.Series(name, values, types[kind])
    return polars.DataFrame([column(name, values, table.kinds[name]) for name, values in page.items()])


_MAKERS: dict[str, Callable[[Any, Table], Any]] = {'pandas': _of_pandas, 'polars': _of_polars}
