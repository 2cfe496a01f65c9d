"""Datasets on the fake Hub, and files of pairs in each format."""

import csv
import gzip
import io
import json

import pyarrow
import pyarrow.parquet

from playground.datasets.sources import ReadOptions

ANY = ReadOptions()
NAMED = ReadOptions(columns=("source", "target"))
PAIRS = [(f"{i:03d}", f"{i:03d}x") for i in range(300)]
TEXT = "".join(f"{a}\t{b}\n" for a, b in PAIRS)
CSV = "source,target\n" + TEXT.replace("\t", ",")
COLUMNS = dict(zip(("source", "target"), map(list, zip(*PAIRS, strict=True)), strict=True))
CARD = "---\n{}---\n"


def as_csv(rows, **dialect):
    file = io.StringIO()
    csv.writer(file, **dialect).writerows(rows)
    return file.getvalue()


def as_parquet(columns, **options):
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), file, **options)
    return file.getvalue()


def as_json_lines(rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def put(hub, files, repo="ada/pairs", **settings):
    return hub.put(repo, files, kind="dataset", **settings)


def fetched(requests):
    """Return the names of the files that were requested, without repetitions."""
    paths = [request.path for request in requests if "/resolve/" in request.path]
    return sorted({path.split("/", 6)[-1] for path in paths})


def objects(rows):
    return [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]


FORMATS = {
    "rows.csv": lambda rows: as_csv(rows).encode(),
    "rows.tsv": lambda rows: as_csv(rows, delimiter="\t").encode(),
    "semicolons.csv": lambda rows: as_csv(rows, delimiter=";", quoting=csv.QUOTE_ALL).encode(),
    "excel.csv": lambda rows: b"\xef\xbb\xbfsep=;\r\n" + as_csv(rows, delimiter=";").encode(),
    "utf16.csv": lambda rows: as_csv(rows).encode("utf-16"),
    "latin.csv": lambda rows: as_csv(rows).encode("cp1252", "ignore"),
    "rows.csv.gz": lambda rows: gzip.compress(as_csv(rows).encode()),
    "arrows.txt": lambda rows: "".join(f"{a} → {b}\n" for a, b in rows[1:]).encode(),
    "rows.jsonl": lambda rows: as_json_lines(objects(rows)).encode(),
    "rows.ndjson.gz": lambda rows: gzip.compress(as_json_lines(objects(rows)).encode()),
    "rows.json": lambda rows: json.dumps(objects(rows)).encode(),
    "rows in data.json": lambda rows: json.dumps({"data": objects(rows)}).encode(),
    "rows.parquet": lambda rows: (
        as_parquet({"source": [a for a, _ in rows], "target": rows[0]})
        if len(rows) == 2
        else as_parquet(dict(zip(rows[0], map(list, zip(*rows[1:], strict=True)), strict=True)))
    ),
    "nested.jsonl": lambda rows: as_json_lines(
        {"pair": {"source": a, "target": b.split()}, "id": 1} for a, b in rows[1:]
    ).encode(),
    "chat.jsonl": lambda rows: as_json_lines(
        {"messages": [{"role": "user", "content": a}, {"role": "assistant", "content": b}]}
        for a, b in rows[1:]
    ).encode(),
    "nested.parquet": lambda rows: as_parquet(
        {
            "pair": [{"source": a, "target": b.split()} for a, b in rows[1:]],
            "n": [1] * (len(rows) - 1),
        }
    ),
}
