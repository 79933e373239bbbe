"""Tables of tasks as files: CSV and Parquet, written page by page."""

from __future__ import annotations

import csv
from datetime import datetime, timedelta, timezone
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from rp_api.errors import PilotError
from rp_client.inspect.frames import nanoseconds, polars_page
from rp_client.inspect.rows import FLAG, INTEGER, NUMBER, TEXT, TIME
from rp_client.inspect.table import Table

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def write_csv(table: Table, file: IO[str]) -> None:
    """Write a table as CSV with the names of the columns in the first line.

    Times are UTC in ISO 8601; what is not known is empty.
    """
    writer = csv.writer(file, lineterminator='\n')
    writer.writerow(table.kinds)
    for page in table.pages:
        columns = [map(_iso, nanoseconds(values)) if table.kinds[name] == TIME else values
                   for name, values in page.items()]
        writer.writerows(zip(*columns, strict=True))


def write_parquet(table: Table, path: Path) -> None:
    """Write a table as a Parquet file with one group of rows for each page.

    Raises:
        PilotError: Neither pyarrow nor polars is installed.
        FileExistsError: The file exists already.
    """
    if not find_spec('pyarrow') and not find_spec('polars'):
        raise PilotError('Parquet files are written by pyarrow or polars, and neither is installed: '
                         'pip install pyarrow, or pip install polars')
    path.touch(exist_ok=False)
    (_write_by_pyarrow if find_spec('pyarrow') else _write_by_polars)(table, path)


def _iso(time: int | None) -> str | None:
    """Return a time in nanoseconds since 1970 as text, the same microsecond as in data frames."""
    return None if time is None else (_EPOCH + timedelta(microseconds=time // 1000)).isoformat(timespec='microseconds')


def _write_by_pyarrow(table: Table, path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    types = {TEXT: pyarrow.string(), INTEGER: pyarrow.int64(), NUMBER: pyarrow.float64(), FLAG: pyarrow.bool_(),
             TIME: pyarrow.timestamp('ns', 'UTC')}
    schema = pyarrow.schema([(name, types[kind]) for name, kind in table.kinds.items()])
    with parquet.ParquetWriter(path, schema) as writer:
        for page in table.pages:
            writer.write_table(pyarrow.table({
                name: nanoseconds(values) if table.kinds[name] == TIME else values for name, values in page.items()},
                schema))


def _write_by_polars(table: Table, path: Path) -> None:
    """Write the pages to files, and join these, since polars adds no rows to a file."""
    import polars

    with TemporaryDirectory(prefix=f'{path.name}.', dir=path.parent) as directory:
        parts: list[Path] = []
        for page in table.pages:
            parts.append(Path(directory, f'{len(parts):06d}.parquet'))
            polars_page(polars, table, page).write_parquet(parts[-1])
        polars.scan_parquet(parts).sink_parquet(path)

