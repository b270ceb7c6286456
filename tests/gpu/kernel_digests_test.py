"""Which changes of the sources make which rows of the GPU record stale: edits on a copy, one at a time."""

import pathlib
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from kernel_digests import ROOT, python_digest, row_digests, without_docstrings  # noqa: E402


class KernelDigestsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for part in ("src", "bench/ladder"):
            shutil.copytree(ROOT / part, self.root / part)
        self.before = row_digests(self.root)

    def stale_after(self, name, old, new):
        """The rows whose digests change when `old`, which occurs in src/cuda/<name>, becomes `new`."""
        file = (self.root / "src" / "cuda" / name).resolve()
        text = file.read_text(encoding="utf-8")
        self.assertIn(old, text, f"{name} has changed; this test must follow")
        file.write_text(text.replace(old, new, 1), encoding="utf-8")
        after = row_digests(self.root)
        file.write_text(text, encoding="utf-8")
        self.assertEqual(self.before.keys(), after.keys())
        return {row for row, digest in after.items() if digest != self.before[row]}

    def rows(self, *families):
        found = {row for row in self.before if row.startswith(families)}
        self.assertTrue(found)
        return found

    def test_device_code_beside_the_rows_counts(self):
        self.assertEqual(
            self.rows("sm80_"),
            self.stale_after("sm80/combine_kernel.cuh", "float row_sum = 0.0f;", "float row_sum = 1.0f;"),
        )
        self.assertEqual(
            self.rows("sm90_"),
            self.stale_after("sm90/tile_counter.cuh", "&counter->count, 0", "&counter->count, 1"),
        )

    def test_parameters_and_launches_count(self):
        self.assertEqual(
            self.rows("sm80_"), self.stale_after("sm80/make_params.h", "problem.scale * kLog2E", "problem.scale * kLn2")
        )
        self.assertEqual(
            self.rows("sm80_"), self.stale_after("sm80/sm80_kernels.cc", "kMostSplits = 64", "kMostSplits = 65")
        )
        self.assertEqual(
            self.rows("sm80_"), self.stale_after("sm80/combine.cu", "32 * kCombineWarps", "64 * kCombineWarps")
        )
        self.assertEqual(
            self.rows("sm90_"),
            self.stale_after("sm90/sm90_kernels.cc", "namespace tilefold {", "namespace tilefold {;"),
        )
        self.assertEqual(
            self.rows("sm80_", "sm90_"),
            self.stale_after("tensor_map.cc", "kAlignmentBytes = 16", "kAlignmentBytes = 32"),
        )
        self.assertEqual(
            self.rows("generic_"), self.stale_after("generic/generic_kernels.cc", "kLastResort = 1", "kLastResort = 2")
        )

    def test_a_dtype_of_the_generic_family_counts_for_itself(self):
        stale = self.stale_after("generic/forward_fp16.cu", "#include", "int unused;\n#include")
        self.assertEqual({"generic_fp16"}, stale)

    def test_rungs_of_the_ladder_count(self):
        rungs = self.rows("ladder_")
        self.assertEqual(5, len(rungs))
        stale = self.stale_after("../../bench/ladder/flash1.cu", "#include", "int unused;\n#include")
        self.assertEqual({"ladder_flash1"}, stale)
        self.assertEqual(rungs, self.stale_after("../../bench/ladder/tile.cuh", "kBlockN = 64", "kBlockN = 32"))

    def test_a_line_of_the_table_counts_for_its_row(self):
        row = "sm80_fp16_d64_m128n64_s2"
        line = f"TILEFOLD_SM80_ROW({row}, .dtype = DType::kFloat16, .head_dim = 64,"
        self.assertEqual({row}, self.stale_after("kernels.def", line, line + " .min_ctas = 1,"))

    def test_choice_comments_and_white_space_do_not_count(self):
        self.assertEqual(set(), self.stale_after("sm80/tile_choice.h", "kSamples = 8", "kSamples = 9"))
        self.assertEqual(set(), self.stale_after("sm90/forward_cost.cc", "namespace tilefold", "namespace  another"))
        self.assertEqual(set(), self.stale_after("sm80/load.cuh", "namespace", "// a comment\n\nnamespace"))
        self.assertEqual(set(), self.stale_after("kernels.def", "// The compiled", "// All the compiled"))

    def test_of_the_python_package_code_counts_and_docstrings_do_not(self):
        code = 'def f(a):\n    """What it does."""\n    return "a string"  # why\n'
        self.assertEqual(without_docstrings(code), without_docstrings(code.replace("What it does.", "Else.\n\n    More.")))
        self.assertEqual(without_docstrings(code), without_docstrings("# a comment\n\n" + code))
        self.assertEqual(without_docstrings(code), without_docstrings(code.replace("  # why", "  # because")))
        self.assertNotEqual(without_docstrings(code), without_docstrings(code.replace("a string", "another")))
        self.assertNotEqual(without_docstrings(code), without_docstrings(code.replace("a string", "a # string")))
        shutil.copytree(ROOT / "python", self.root / "python", ignore=shutil.ignore_patterns("__pycache__", "tests"))
        before = python_digest(self.root)
        self.assertEqual(before, python_digest())
        for name, old, new in (
            ("tilefold/_attention.py", "run: Any = _core.forward", "run: Any = None"),
            ("src/scratch.h", "kWorkspaceAlignment = 256", "kWorkspaceAlignment = 16"),
        ):
            file = self.root / "python" / name
            text = file.read_text(encoding="utf-8")
            self.assertIn(old, text, f"{name} has changed; this test must follow")
            file.write_text(text.replace(old, new, 1), encoding="utf-8")
            self.assertNotEqual(before, python_digest(self.root), name)
            file.write_text(text, encoding="utf-8")
        self.assertEqual(before, python_digest(self.root))


if __name__ == "__main__":
    unittest.main()
