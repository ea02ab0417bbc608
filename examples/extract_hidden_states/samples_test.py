#!/usr/bin/env python3
"""Reads the same rows from every format, and extracts them with a stand-in for the model.

  python3 samples_test.py [FOLDER]     testdata/samples otherwise

Without pyarrow only jsonl is tried, and the others are skipped with that reason.
"""
import os
import subprocess
import sys
import tempfile
import unittest

from samples import open_samples

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(HERE, "..", "..", "testdata", "samples")
FORMATS = ["rows-file.arrow", "rows-stream.arrow", "large-file.arrow", "large-stream.arrow", "rows.parquet", "large.parquet", "saved", "parts"]
EMPTY = (5, 9)  # rows without tokens; the second one is null where a format can say so

try:
    import pyarrow
except ImportError:
    pyarrow = None


def rows(name):
    data = open_samples(os.path.join(FOLDER, name))
    return [(list(ids), list(mask or [])) for ids, mask in (data[i] for i in range(len(data)))], data.lengths()


def extracted(name, folder):
    """What the extractor writes of a data set: contents by file name."""
    argv = [sys.executable, "extract.py", "--backend", "fake_states", "--model", "0", "--data", os.path.join(FOLDER, name), "--out", folder, "--batch", "4", "--layers", "1"]
    p = subprocess.run(argv, cwd=HERE, capture_output=True, text=True, timeout=120)
    if p.returncode != 0:
        raise AssertionError(f"{name}: exit {p.returncode}: {p.stderr[-2000:]}")
    out = {}
    for file in os.listdir(folder):
        with open(os.path.join(folder, file), "rb") as f:
            out[file] = f.read()
    return out


class Formats(unittest.TestCase):
    maxDiff = None

    def test_jsonl(self):
        got, lengths = rows("rows.jsonl")
        self.assertEqual((len(got), got[0], [i for i, n in enumerate(lengths) if n == 0]), (24, ([1000, 1001, 1002], [0, 0, 1]), list(EMPTY)))

    @unittest.skipIf(pyarrow is None, "pyarrow is not installed: arrow and parquet cannot be read")
    def test_every_format_has_the_same_rows(self):
        want = rows("rows.jsonl")
        for name in FORMATS:
            with self.subTest(name):
                self.assertEqual(rows(name), want)

    @unittest.skipIf(pyarrow is None, "pyarrow is not installed: arrow and parquet cannot be read")
    def test_every_format_gives_the_same_files(self):
        with tempfile.TemporaryDirectory() as root:
            want = extracted("rows.jsonl", os.path.join(root, "jsonl"))
            self.assertEqual(len(want), 24 - len(EMPTY))
            for name in FORMATS:
                with self.subTest(name):
                    self.assertEqual(extracted(name, os.path.join(root, name)), want)

    @unittest.skipIf(pyarrow is not None, "pyarrow is installed")
    def test_without_pyarrow_it_says_so(self):
        for name in FORMATS:
            with self.subTest(name), self.assertRaisesRegex(SystemExit, "(?s)cannot read.*hint: .*pyarrow"):
                open_samples(os.path.join(FOLDER, name))

    def test_what_is_no_data_set(self):
        with tempfile.NamedTemporaryFile(suffix=".csv") as f, self.assertRaisesRegex(SystemExit, "neither"):
            open_samples(f.name)

    def test_a_folder_without_data(self):
        with tempfile.TemporaryDirectory() as root, self.assertRaisesRegex(SystemExit, "no arrow or parquet files"):
            open_samples(root)


if __name__ == "__main__":
    if len(sys.argv) > 1 and os.path.isdir(sys.argv[1]):
        FOLDER = sys.argv.pop(1)
    unittest.main(verbosity=2)
