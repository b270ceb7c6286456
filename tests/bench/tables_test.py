"""What bench/tables.py notices, and what it writes: the documents and CSV files as they are, brought into agreement in
a copy, then spoilt in one place at a time."""

import contextlib
import csv
import io
import pathlib
import shutil
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import tables  # noqa: E402

README, PERFORMANCE, HOPPER = "README.md", "docs/performance.md", "docs/hopper.md"
RESULTS = tuple(f"bench/results/{run[0]}" for run in tables.RUNS)
# Where each table begins: document, the beginnings of its heading and of the line to spoil, the row's name.
FIRST_CELLS = (
    (README, "## How it compares", "| sm90 against cuDNN", "sm90 against cuDNN"),
    (PERFORMANCE, "Geometric mean over N and mask", "| sm80 / FA2, bfloat16 ", "sm80 / FA2, bfloat16"),
    (PERFORMANCE, "## float16", "|  | FA2 |", "D = 64, full, FA2"),
    (PERFORMANCE, "## bfloat16", "| D = 64, causal | sm90 |", "D = 64, causal, sm90"),
    (PERFORMANCE, "| sm90 / FA3, fp16 ", "| D = 256, causal |", "D = 256, causal"),
    (PERFORMANCE, "| sm90 / FA3, bf16 ", "| D = 64, full |", "D = 64, full"),
    (PERFORMANCE, "## The other head dims of sm80", "| 192 |", "192"),
    (PERFORMANCE, "## The other head dims of sm90", "| D = 96, causal |", "D = 96, causal"),
    (HOPPER, "## Measured", "| bfloat16 256 causal |", "bfloat16 256 causal"),
)


class TablesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name in (README, PERFORMANCE, HOPPER, *RESULTS):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.root / name)
        self.assertEqual(0, self.run_script("--write")[0])
        self.sound = self.documents()

    def documents(self):
        return {name: (self.root / name).read_bytes() for name in (README, PERFORMANCE, HOPPER)}

    def run_script(self, what):
        """(exit status, lines of errors, output)"""
        output, errors = io.StringIO(), io.StringIO()
        with (
            mock.patch.object(sys, "argv", ["tables.py", what, "--root", str(self.root)]),
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(errors),
        ):
            status = tables.main()
        return status, errors.getvalue().splitlines(), output.getvalue()

    def change(self, name, change):
        path = self.root / name
        text = path.read_text(encoding="utf-8")
        changed = change(text)
        self.assertNotEqual(text, changed, name)
        path.write_text(changed, encoding="utf-8")

    def change_rows(self, name, change, columns=lambda columns: columns):
        """Changes the rows of a CSV file, as dictionaries, and which columns it has."""

        def of_text(text):
            head = [line for line in text.splitlines() if line.startswith("#")]
            reader = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
            rows, out = change(list(reader)), io.StringIO()
            writer = csv.DictWriter(out, columns(reader.fieldnames), extrasaction="ignore", lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
            return "\n".join((*head, out.getvalue()))

        self.change(name, of_text)

    def test_what_was_written_passes(self):
        status, errors, output = self.run_script("--check")
        self.assertEqual((0, []), (status, errors))
        self.assertRegex(output, r"^tables: \d+ cells are as the CSV files in bench/results have them\n$")
        self.run_script("--write")
        self.assertEqual(self.sound, self.documents())

    def test_a_cell_that_differs_is_named_and_written_again(self):
        for name, section, line, row in FIRST_CELLS:
            def spoil(text, section=section, line=line):
                begin = text.index("\n" + line, text.index("\n" + section))
                end = text.index("\n", begin + 1)
                cells = text[begin:end].split("|")
                cells[-2] = " 9.99 "
                return text[:begin] + "|".join(cells) + text[end:]

            with self.subTest(name=name, section=section):
                self.change(name, spoil)
                status, errors, _ = self.run_script("--check")
                self.assertEqual((1, 2), (status, len(errors)), errors)
                self.assertIn(name, errors[0])
                self.assertIn(f"row '{row}", errors[0])
                self.assertIn("'9.99' where bench/results/h200-", errors[0])
                self.assertEqual(0, self.run_script("--write")[0])
                self.assertEqual(self.sound, self.documents())

    def test_a_new_figure_is_seen_in_every_table_that_has_it(self):
        def change(rows):
            for row in rows:
                if row["peer"] == "tilefold_sm90" and (row["hdim"], row["causal"], row["seqlen"]) == ("64", "0", "512"):
                    row["tflops"] = "12345.6"
            return rows

        self.change_rows(RESULTS[0], change)
        status, errors, _ = self.run_script("--check")
        self.assertEqual((1, 5), (status, len(errors)), errors)
        for name in (PERFORMANCE, HOPPER):
            self.assertEqual(2, sum(name in error and "column '512'" in error for error in errors), name)
        self.assertEqual(0, self.run_script("--write")[0])
        self.assertIn("| D = 64, full | sm90 | 12346 (", (self.root / PERFORMANCE).read_text(encoding="utf-8"))

    def test_further_points_change_nothing_nor_does_the_head_dim_of_v(self):
        def add(rows):
            rows = [{**row, "hdim_v": row.get("hdim_v") or row["hdim"]} for row in rows]
            first = {**rows[0], "median_ms": "0.0001", "tflops": "9999.0"}
            further = ({"hdim": "40", "hdim_v": "40"}, {"seqlen": "700", "seqlen_q": "700"}, {"hdim_v": "128"},
                       {"seqlen_q": "1"}, {"heads_kv": "1"})  # fmt: skip
            return rows + [{**first, "hdim": "64", "hdim_v": "64", **other} for other in further]

        def without_v(columns):
            return [column for column in columns if column != "hdim_v"]

        for name in RESULTS:
            self.change_rows(name, add, lambda columns: [*without_v(columns), "hdim_v"])
        self.assertEqual((0, []), self.run_script("--check")[:2])
        self.assertEqual((0, []), self.run_script("--summary")[:2])
        for name in RESULTS:
            self.change_rows(name, lambda rows: [r for r in rows if r["hdim_v"] == r["hdim"]], without_v)
        self.assertEqual((0, []), self.run_script("--check")[:2])

    def test_a_table_or_a_point_that_is_missing_is_an_error_and_nothing_is_written(self):
        for name, change, words in (
            (HOPPER, lambda text: text.replace("| float16 128 full |", "| float16 120 full |"), "float16 128 full"),
            (PERFORMANCE, lambda text: text.replace("## FlashAttention-3", "## Others"), "section 'FlashAttention-3'"),
            (README, lambda text: text.replace("| sm80 against", "\n| sm80 against"), "it has 2 rows, not 3"),
            (RESULTS[2], lambda text: text.replace("\nfa3,fwd,bf16,", "\nfa4,fwd,bf16,"), "no median_ms of fa3"),
            (RESULTS[1], lambda text: text + text[text.index("torch_fa2,fwd,") :], "there are two figures for torch_fa2"),
        ):
            sound = (self.root / name).read_bytes()
            with self.subTest(words=words):
                self.change(name, change)
                before = self.documents()
                for what in ("--check", "--write"):
                    status, errors, _ = self.run_script(what)
                    self.assertEqual((1, 1), (status, len(errors)), errors)
                    self.assertIn(words, errors[0])
                self.assertEqual(before, self.documents())
            (self.root / name).write_bytes(sound)

    def test_a_ratio_below_one_is_never_shown_as_one(self):
        shown = {1.2345: "1.23", 1.0: "1.00", 1.004: "1.00", 0.994: "0.99", 0.996: "0.996", 0.99961: "0.9996"}
        self.assertEqual(list(shown.values()), [tables.as_ratio(value) for value in shown])

    def test_the_summary_names_the_points_below_one(self):
        def slow(rows):
            for row in rows:
                if row["peer"] == "fa3":
                    row["median_ms"] = "0.0001" if row["hdim"] == "128" and row["seqlen"] == "2048" else "99"
            return rows

        self.change_rows(RESULTS[2], slow)
        status, errors, output = self.run_script("--summary")
        self.assertEqual((0, []), (status, errors))
        of_fa3 = output[output.index(RESULTS[2]) :]
        below = [line for line in of_fa3.splitlines() if "below 1.00: " in line][:3]
        self.assertEqual([4, 2, 2], [line.count("D = 128, ") for line in below], below)
        for name in RESULTS:
            self.assertIn((self.root / name).read_text(encoding="utf-8").splitlines()[0], output)


if __name__ == "__main__":
    unittest.main()
