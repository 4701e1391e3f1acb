"""A SQLite file of unknown schema, opened to read only: tables and columns are looked up, values checked."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from wavescope.audit.launches import NULL, IntColumn
from wavescope.audit.source import Progress, head, refuse

MAGIC = b"SQLite format 3\0"
_ROWS = 1 << 14  # fetched at once
_MIN_ROW_BYTES = 4  # of a row with a column or more, so that a damaged file cannot claim more rows than it has room for
_HEADER = 100


@dataclass(frozen=True)
class Database:
    """An open database: `columns` maps each table's name to its columns' names, as the file spells them."""

    where: str
    connection: sqlite3.Connection
    columns: dict[str, tuple[str, ...]]
    size: int  # bytes of the file
    progress: Progress | None

    @property
    def max_rows(self) -> int:
        """More rows than the file has room for."""
        return self.size // _MIN_ROW_BYTES + 1

    def table(self, name: str) -> str | None:
        """The table's name as the file spells it; None where there is no such table."""
        return next((table for table in self.columns if table.lower() == name.lower()), None)

    def has(self, table: str, column: str) -> bool:
        """Whether `table` has `column`, in any case."""
        return any(known.lower() == column.lower() for known in self.columns[table])


@contextlib.contextmanager
def opened(path: str | Path, progress: Progress | None = None) -> Iterator[Database]:
    """The database at `path`, which stays as it is; errors of SQLite in the block become InputErrors.

    Raises: InputError for a file that is locked, damaged, truncated or no SQLite database.
    """
    where = str(path)
    header = head(path, _HEADER)
    size = os.stat(path).st_size
    _check_size(where, header, size)
    connection = sqlite3.connect(f"file:{quote(os.fsencode(os.path.abspath(path)))}?mode=ro", uri=True, timeout=0)
    try:
        connection.text_factory = lambda raw: raw.decode(errors="replace")
        yield Database(where, connection, _schema(connection), size, progress)
    except sqlite3.DatabaseError as error:
        message = str(error)
        if "locked" in message or "busy" in message:
            what = "the SQLite database is locked: another program is writing to it"
            refuse(where, what, "wait until its export has ended")
        refuse(where, f"the SQLite database is damaged ({message[:120]})", "copy or export it again")
    except (OverflowError, UnicodeDecodeError) as error:  # the latter for names in the schema
        refuse(where, f"the SQLite database is damaged ({error})", "copy or export it again")
    finally:
        connection.close()


def _check_size(where: str, header: bytes, size: int) -> None:
    """Refuse a file that is shorter than its header says."""
    if not header.startswith(MAGIC):
        refuse(where, "not an SQLite database", "export one with: nsys export --type sqlite")
    page = int.from_bytes(header[16:18], "big") if len(header) == _HEADER else 0
    page = 65536 if page == 1 else page
    pages = int.from_bytes(header[28:32], "big")
    counters_agree = header[24:28] == header[92:96]  # else the page count was left by an old SQLite
    if len(header) < _HEADER or (counters_agree and size < page * pages):
        what = f"truncated: {size} bytes are there, {page * pages or _HEADER} should be"
        refuse(where, what, "copy or export it again")


def _schema(connection: sqlite3.Connection) -> dict[str, tuple[str, ...]]:
    """Tables and their columns; views and virtual tables are code of the file's, and left out."""
    names = [
        name
        for name, sql in connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'")
        if isinstance(name, str) and not str(sql).upper().startswith("CREATE VIRTUAL")
    ]
    return {
        name: tuple(str(row[1]) for row in connection.execute(f"PRAGMA table_info({quoted(name)})")) for name in names
    }


def quoted(name: str) -> str:
    """A table's or column's name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def num_rows(database: Database, table: str) -> int:
    """How many rows `table` has."""
    number: int = database.connection.execute(f"SELECT count(*) FROM {quoted(table)}").fetchone()[0]
    return number


def integers(database: Database, table: str, columns: Sequence[str]) -> dict[str, IntColumn]:
    """Columns of `table` as whole numbers, NULL for other values and for columns that it has not."""
    terms = [_integer(column) if database.has(table, column) else str(NULL) for column in columns]
    parts = [np.empty((0, len(columns)), np.int64)]
    expected, done = num_rows(database, table), 0
    for rows in _fetched(database, f"SELECT {', '.join(terms)} FROM {quoted(table)}"):
        parts.append(np.array(rows, np.int64))
        done += len(rows)
        if database.progress is not None:
            database.progress(database.size * min(done, expected) // max(expected, 1), database.size)
    whole = np.concatenate(parts)
    return {column: whole[:, index].copy() for index, column in enumerate(columns)}


def _integer(column: str) -> str:
    name = quoted(column)
    return f"CASE typeof({name}) WHEN 'integer' THEN {name} ELSE {NULL} END"


def rows(
    database: Database, table: str, columns: Sequence[str], condition: str = "1", most: int | None = None
) -> Iterator[tuple[Any, ...]]:
    """Rows of `table` with the values as they are, None for columns that it has not."""
    terms = [quoted(column) if database.has(table, column) else "NULL" for column in columns]
    limit = f" LIMIT {most}" if most is not None else ""
    for part in _fetched(database, f"SELECT {', '.join(terms)} FROM {quoted(table)} WHERE {condition}{limit}"):
        yield from part


def _fetched(database: Database, statement: str) -> Iterator[list[tuple[Any, ...]]]:
    cursor = database.connection.execute(statement)
    done = 0
    while part := cursor.fetchmany(_ROWS):
        done += len(part)
        if done > database.max_rows:
            what = "the SQLite database is damaged (a table without end)"
            refuse(database.where, what, "copy or export it again")
        yield part
