"""Runs statements for tapdex-bench in DuckDB, one a line of standard input.

Each is answered by a line: the seconds that it took and the first cell of its answer, or what went
wrong. The first line, before any statement, has DuckDB's version and how many threads it uses.
"""

import sys
import time

try:
    import duckdb
except ImportError:
    print("missing", flush=True)
    sys.exit()


def main():
    connection = duckdb.connect()
    # It would be written where the answers go.
    connection.execute("SET enable_progress_bar = false")
    threads = connection.execute("SELECT current_setting('threads')").fetchone()[0]
    print("ready", duckdb.__version__, threads, sep="\t", flush=True)
    for line in sys.stdin:
        start = time.perf_counter()
        try:
            row = connection.execute(line).fetchone()
        except duckdb.Error as error:
            print("error", " ".join(str(error).split()), sep="\t", flush=True)
            continue
        seconds = time.perf_counter() - start
        print("done", seconds, row[0] if row else "", sep="\t", flush=True)


main()
