"""What the check of the GPU record lets pass: a record made up from the sources as they are, then spoilt in one place
at a time."""

import contextlib
import copy
import io
import json
import pathlib
import sys
import tempfile
import types
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import check_record  # noqa: E402
from check_record import PYTHON, PYTHON_NEEDS, SANITIZERS  # noqa: E402
from kernel_digests import LADDER, python_digest, row_digests  # noqa: E402
from run_gpu_tests import SANITIZER_CASES, write_record  # noqa: E402

ROW = "sm90_fp16_d128_m128n128_s2_masked"
CLEAN = {
    "memcheck": "clean: 0 errors; 353 tests passed (*LengthTest.NoKeys*)",
    "racecheck": "clean: 0 hazards displayed (0 errors, 0 warnings); 35 tests passed (*MaskTest.*)",
}


class CheckRecordTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        gpu = {"gpu": "a GPU", "date": "a day"}
        cls.rows = row_digests()
        cls.python = python_digest()
        cls.sound = {
            "runs": {name: {**gpu, "sanitizers": dict(CLEAN)} for name in ("first", "second")},
            "rows": {
                row: {"digest": digest, "run": "second" if row == ROW else "first", "passed": 3, "failed": []}
                for row, digest in cls.rows.items()
            },
            "unverified": {},
            PYTHON: {**gpu, "digest": cls.python, "passed": {name: 1 for name in PYTHON_NEEDS}},
        }

    def check(self, spoil=lambda record: None):
        """(exit status, lines of errors, output) of the check of the sound record once `spoil` has been at it."""
        record = copy.deepcopy(self.sound)
        spoil(record)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "record.json"
            path.write_text(json.dumps(record), encoding="utf-8")
            output, errors = io.StringIO(), io.StringIO()
            with (
                mock.patch.object(sys, "argv", ["check_record.py", "--record", str(path)]),
                mock.patch.object(check_record, "row_digests", lambda: self.rows),
                mock.patch.object(check_record, "python_digest", lambda: self.python),
                contextlib.redirect_stdout(output),
                contextlib.redirect_stderr(errors),
            ):
                status = check_record.main()
        return status, errors.getvalue().splitlines(), output.getvalue()

    def expect_one_error(self, spoil, words):
        status, errors, _ = self.check(spoil)
        self.assertEqual(1, status)
        self.assertEqual(1, len(errors), errors[:3])
        self.assertIn(f"error: {ROW} {words}", errors[0])

    def test_a_sound_record_passes(self):
        status, errors, output = self.check()
        self.assertEqual((0, []), (status, errors[:3]), output)
        rungs = sum(row.startswith(LADDER) for row in self.rows)
        self.assertIn(f"{len(self.rows) - rungs} of {len(self.rows) - rungs} GPU kernel rows", output)
        self.assertIn(f"{rungs} of {rungs} rungs", output)

    def test_a_row_that_changed_failed_or_never_ran_is_an_error(self):
        self.expect_one_error(lambda record: record["rows"].pop(ROW), "has no record of a run")
        self.expect_one_error(lambda record: record["rows"][ROW].update(digest="another"), "has changed since")
        self.expect_one_error(lambda record: record["rows"][ROW].update(failed=["A.Test"]), "failed 1 tests")
        self.expect_one_error(lambda record: record["rows"][ROW].update(passed=0), "passed no test")

    def test_a_run_without_a_clean_sanitizer_is_an_error_for_its_rows(self):
        self.assertEqual(set(SANITIZERS), set(SANITIZER_CASES), "those that are run are those that are asked for")
        for tool in SANITIZERS:
            for said in (
                None,
                "FAULTS: 1 errors; 353 tests passed (*)",
                "not finished in 300 s",
                "clean: no summary; 353 tests passed (*)",
                "clean: 0 errors; 0 tests passed (*)",
            ):
                def spoil(record, tool=tool, said=said):
                    of_run = record["runs"]["second"]["sanitizers"]
                    of_run.update({tool: said}) if said else of_run.pop(tool)

                with self.subTest(tool=tool, said=said):
                    self.expect_one_error(spoil, f"ran on a GPU without a clean {tool}, which said: {said or 'nothing'}")

        def without(record):
            record["runs"]["second"]["sanitizers"] = {"none": "compute-sanitizer was not run"}

        self.expect_one_error(without, "ran on a GPU without a clean memcheck, which said: nothing")
        self.expect_one_error(lambda record: record["runs"].pop("second"), "ran on a GPU without a clean memcheck")

    def test_what_a_sanitizer_left_out_is_said(self):
        def spoil(record):
            said = "clean: 0 hazards displayed (0 errors, 0 warnings); 7 tests passed (*A.B*:*C.D*-*C.D*/a_row)"
            record["runs"]["second"]["sanitizers"]["racecheck"] = said

        self.assertNotIn("ran without", self.check()[2])
        status, errors, output = self.check(spoil)
        self.assertEqual((0, []), (status, errors))
        self.assertIn("racecheck ran without *C.D*/a_row", output)

    def test_the_ladder_needs_no_sanitizer(self):
        def spoil(record):
            record["runs"]["third"] = {"gpu": "a GPU", "date": "a day", "sanitizers": {}}
            for row, entry in record["rows"].items():
                entry["run"] = "third" if row.startswith(LADDER) else entry["run"]

        self.assertEqual(0, self.check(spoil)[0])

    def test_what_is_listed_with_a_reason_passes(self):
        def spoil(record):
            record["runs"]["second"]["sanitizers"] = {}
            record["unverified"][ROW] = "the driver is too new for the sanitizer"

        status, errors, output = self.check(spoil)
        self.assertEqual((0, []), (status, errors))
        self.assertIn(f"unverified: {ROW} ran on a GPU without a clean memcheck", output)
        self.assertIn("the driver is too new", output)

    def test_a_run_takes_away_the_reasons_that_it_answers(self):
        rung = next(row for row in self.rows if row.startswith(LADDER))
        for sanitizers, left in (
            (dict(CLEAN), set()),
            ({**CLEAN, "racecheck": "not finished in 300 s"}, {ROW}),
            ({}, {ROW}),
        ):
            with self.subTest(sanitizers=sanitizers), tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder) / "record.json"
                path.write_text(json.dumps({"unverified": {ROW: "no GPU", rung: "no GPU"}}), encoding="utf-8")
                run = types.SimpleNamespace(record=path, rows="", program="not here", commit="0")
                write_record(run, {row: {"A.Test": ("passed", "")} for row in (ROW, rung)}, sanitizers)
                self.assertEqual(left, set(json.loads(path.read_text(encoding="utf-8"))["unverified"]))


if __name__ == "__main__":
    unittest.main()
