"""Prints a Parquet file's schema and its rows, each as a line of JSON, as pyarrow reads them. Times are in nanoseconds
since the Unix epoch."""

import json
import sys

import pyarrow
import pyarrow.parquet

table = pyarrow.parquet.read_table(sys.argv[1])
print(json.dumps({field.name: str(field.type) for field in table.schema}))
columns = {}
for field in table.schema:
    column = table[field.name]
    if pyarrow.types.is_timestamp(field.type):
        column = column.cast(pyarrow.int64())
    columns[field.name] = column.to_pylist()
for row in range(table.num_rows):
    print(json.dumps({name: values[row] for name, values in columns.items()}))
