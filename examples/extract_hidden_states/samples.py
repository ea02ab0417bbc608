"""Tokenised samples: arrow, parquet or jsonl with input_ids and loss_mask.

A sample's id is its row number. Rows are read when they are needed: a data set
of a million samples is not held in memory.
"""
import json
import os


class Jsonl:
    """One JSON object a line. Only the lines' places are kept."""

    def __init__(self, path):
        self.file = open(path, "rb")
        self.places, at = [], 0
        for line in self.file:
            if line.strip():
                self.places.append(at)
            at += len(line)

    def __len__(self):
        return len(self.places)

    def __getitem__(self, index):
        self.file.seek(self.places[index])
        row = json.loads(self.file.readline())
        return row["input_ids"], row.get("loss_mask")

    def lengths(self):
        return [len(self[i][0]) for i in range(len(self))]


class Table:
    """An arrow table, mapped from disk where the format allows it. A null is an empty sample."""

    def __init__(self, table):
        import pyarrow.compute as pc

        self.ids = table.column("input_ids")
        self.mask = table.column("loss_mask") if "loss_mask" in table.column_names else None
        self.all_lengths = [n or 0 for n in pc.list_value_length(self.ids).to_pylist()]

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        return self.ids[index].as_py() or [], None if self.mask is None else self.mask[index].as_py()

    def lengths(self):
        return self.all_lengths


def read_arrow(path):
    """Reads an arrow file: a stream as Hugging Face writes it, or an IPC file."""
    import pyarrow as pa

    source = pa.memory_map(path)
    try:
        return pa.ipc.open_stream(source).read_all()
    except pa.ArrowInvalid:
        return pa.ipc.open_file(pa.memory_map(path)).read_all()


def wanted(schema):
    """The columns that are used: parquet is unpacked into memory, and the text of a data set is large."""
    return [name for name in schema.names if name in ("input_ids", "loss_mask")]


def names_of(path, suffix):
    """The data files of a folder, in order. `state.json` of save_to_disk names them."""
    state = os.path.join(path, "state.json")
    if suffix == ".arrow" and os.path.exists(state):
        with open(state) as f:
            return [os.path.join(path, d["filename"]) for d in json.load(f)["_data_files"]]
    return [os.path.join(path, n) for n in sorted(os.listdir(path)) if n.endswith(suffix)]


def open_samples(path):
    """The samples of a file, or of a folder of arrow or parquet files."""
    files = [path]
    if os.path.isdir(path):
        files = names_of(path, ".arrow") or names_of(path, ".parquet")
    if not files:
        raise SystemExit(f"extract: no arrow or parquet files in {path!r}")
    kind = os.path.splitext(files[0])[1]
    if kind in (".jsonl", ".json"):
        return Jsonl(files[0])
    if kind not in (".arrow", ".parquet"):
        raise SystemExit(f"extract: {files[0]!r} is neither .arrow nor .parquet nor .jsonl")
    try:
        import pyarrow as pa
    except ImportError as e:
        raise SystemExit(f"extract: cannot read {files[0]!r}: {e}\nhint: `python3 -m pip install pyarrow`, or use jsonl") from e
    if kind == ".parquet":
        import pyarrow.parquet as pq

        return Table(pa.concat_tables([pq.read_table(f, columns=wanted(pq.read_schema(f))) for f in files]))
    return Table(pa.concat_tables([read_arrow(f) for f in files]))


def batches_of(lengths, max_length, most, tokens):
    """Batches of samples of like length: lists of ids.

    They depend on the data alone, not on what is done already nor on the number
    of ranks: the batch that a sample is computed in decides its last bits.
    """
    order = sorted((i for i, n in enumerate(lengths) if 0 < n <= max_length), key=lambda i: (lengths[i], i))
    batches = []
    for i in order:
        last = batches[-1] if batches else None
        if last is None or len(last) >= most or (len(last) + 1) * lengths[i] > tokens:
            batches.append([i])
        else:
            last.append(i)
    return batches
