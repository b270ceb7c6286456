#!/usr/bin/env python3
"""Breaks the GPU kernels on purpose, one fault at a time, and checks that the lane machine notices.

Each mutant is a copy of one kernel source with one exact replacement; it is compiled into a shared object that
lane_machine_run loads. A mutant that survives, or whose pattern no longer occurs exactly once, fails the test.
"""
import argparse
import concurrent.futures
import pathlib
import re
import shutil
import subprocess
import sys

# What the mutants are compiled for: the pipelines, the pair structure, and both load paths, in small tiles.
ROWS = {
    "sm80": """
#include "sm80_run.h"
TILEFOLD_SM80_ROW(d64_s2, .dtype = DType::kFloat16, .head_dim = 64, .block_m = 128, .block_n = 64, .num_warps = 4, .stages = 2, .shared_kib = 99, .q_in_registers = true)
TILEFOLD_SM80_ROW(d32_s2, .dtype = DType::kFloat16, .head_dim = 32, .block_m = 128, .block_n = 64, .num_warps = 4, .stages = 2, .shared_kib = 99)
TILEFOLD_SM80_ROW(d128_s1, .dtype = DType::kBFloat16, .head_dim = 128, .block_m = 64, .block_n = 64, .num_warps = 4, .stages = 1, .shared_kib = 163)
TILEFOLD_SM80_ROW(d160_pair, .dtype = DType::kFloat16, .head_dim = 160, .block_m = 64, .block_n = 64, .num_warps = 4, .stages = 1, .shared_kib = 99, .pair = true)
TILEFOLD_SM80_ROW(d64_s3_tma, .dtype = DType::kBFloat16, .head_dim = 64, .block_m = 128, .block_n = 64, .num_warps = 4, .stages = 3, .shared_kib = 99, .load = LoadPath::kTma, .q_in_registers = true)
TILEFOLD_SM80_ROW(d128_s2_tma, .dtype = DType::kBFloat16, .head_dim = 128, .block_m = 128, .block_n = 32, .num_warps = 4, .stages = 2, .shared_kib = 99, .load = LoadPath::kTma)
TILEFOLD_SM80_ROW(d160_pair_tma, .dtype = DType::kFloat16, .head_dim = 160, .block_m = 64, .block_n = 64, .num_warps = 4, .stages = 1, .shared_kib = 99, .load = LoadPath::kTma, .pair = true)
""",
    "sm90": """
#include "sm90_run.h"
TILEFOLD_SM90_ROW(d64_masked, .dtype = DType::kFloat16, .head_dim = 64, .warpgroups = 2, .block_n = 64, .stages = 2, .masked = true)
TILEFOLD_SM90_ROW(d64_skip, .dtype = DType::kFloat16, .head_dim = 64, .warpgroups = 3, .block_n = 16, .stages = 2, .masked = true, .order_barrier = true, .skip_blocks = true)
TILEFOLD_SM90_ROW(d128_q1, .dtype = DType::kBFloat16, .head_dim = 128, .warpgroups = 2, .block_n = 80, .stages = 2, .q_stages = 1, .order_barrier = true)
TILEFOLD_SM90_ROW(d64_packed, .dtype = DType::kFloat16, .head_dim = 64, .warpgroups = 2, .block_n = 32, .stages = 2, .masked = true, .order_barrier = true, .skip_blocks = true, .pack_heads = true)
TILEFOLD_SM90_ROW(d128_ring, .dtype = DType::kFloat16, .head_dim = 128, .warpgroups = 2, .block_n = 64, .stages = 2, .q_stages = 1, .o_stages = 1, .masked = true, .order_barrier = true, .skip_blocks = true)
""",
}
CASES = [
    "hq=1 nq=128 nk=270 seed=1",
    "hq=4 hkv=2 nq=150 nk=150 causal=bottom_right seed=2",
    "hq=1 nq=150 nk=200 wl=37 wr=20 seed=3",
    "hq=1 nq=150 nk=70 causal=bottom_right seed=4",
    "hq=1 nq=40 nk=150 values=large_logits seed=5",
    "hq=1 nq=40 nk=100 values=negative seed=7",
    "nonfinite hq=1 nq=100 nk=100 causal=top_left seed=6",
    "b=2 hq=10 hkv=2 nq=5 nk=40 causal=bottom_right seed=8",
    "hq=10 hkv=2 nq=20 nk=40 causal=bottom_right seed=9",
    "nonfinite hq=6 hkv=2 nq=12 nk=20 causal=bottom_right seed=10",
    "nonfinite b=2 hq=2 nq=70 nk=70 d=24 dv=16 causal=top_left seed=12",
    "hq=1 nq=200 nk=200 causal=top_left seed=11",
    "b=2 hq=3 hkv=3 nq=40 nk=100 seed=12",
]

# Calls whose removal must be noticed wherever they stand, one mutant for each.
REMOVED = {
    "sm80": ("barrier_sync_cta", "barrier_sync", "sync_warp", "sync_row_group", "cp_async_wait_group",
             "cp_async_commit_group", "mbarrier_wait", "mbarrier_arrive", "mbarrier_arrive_expect_tx",
             "fence_mbarrier_init"),
    "sm90": ("barrier_sync_cta", "barrier_sync", "sync_warpgroup", "sync_warp", "mbarrier_wait", "mbarrier_arrive",
             "mbarrier_arrive_expect_tx", "fence_mbarrier_init", "fence_proxy_async", "wgmma_fence", "wgmma_commit",
             "wgmma_wait", "tma_store_wait_read", "tma_store_wait"),
}
# Calls whose removal changes no result and no order, by a piece of the text around them: (family, text, why).
HARMLESS = [
    ("sm80", r"ptx::sync_warp\(\);(?=\s*ptx::mbarrier_wait\(full_k\(read)", "brings the warp together after thread 0's turn"),
    ("sm80", r"load_next_k<false>\(\);\s*ptx::sync_warp", "the same"),
    ("sm90", r"instead of 14 in the masked row's loops\.\s*sync_warpgroup", "the compiler's view of the code alone"),
]

# (name, file or directory under src/, what is replaced, by what). The text must occur exactly once there.
NAMED = {
    "sm80": [
        ("wait_group of several stages off by one", "cuda/sm80",
         "ptx::cp_async_wait_group<kStages - 2>();", "ptx::cp_async_wait_group<kStages - 1>();"),
        ("wait_group of one stage off by one (K)", "cuda/sm80",
         "ptx::cp_async_wait_group<0>();\n      ptx::barrier_sync_cta();  // K(j)",
         "ptx::cp_async_wait_group<1>();\n      ptx::barrier_sync_cta();  // K(j)"),
        ("wait_group of one stage off by one (V)", "cuda/sm80",
         "ptx::cp_async_wait_group<0>();\n      ptx::barrier_sync_cta();  // V(j)",
         "ptx::cp_async_wait_group<1>();\n      ptx::barrier_sync_cta();  // V(j)"),
        (".trans dropped", "cuda/sm80", "ptx::ldmatrix_x4_trans(b,", "ptx::ldmatrix_x4(b,"),
        ("the running maximum starts at -inf, unguarded", "cuda/sm80", "row_max[m][r] = -FLT_MAX;",
         "row_max[m][r] = -std::numeric_limits<float>::infinity();"),
        ("the running maximum starts at 0 but for its first element (aggregate initialisation)", "cuda/sm80",
         "row_max[m][r] = -FLT_MAX;", "row_max[m][r] = m + r == 0 ? -FLT_MAX : 0.0f;"),
        ("masked scores are a finite number", "cuda/sm80",
         "kMaskedScore = -std::numeric_limits<float>::infinity()", "kMaskedScore = -10.0f"),
        ("the mask's right edge off by one", "cuda/sm80", "column >= end)", "column > end)"),
        ("the mask's left edge off by one", "cuda/sm80", "column < begin ||", "column <= begin ||"),
        ("the tail mask off by one", "layout/block_range.h",
         "return row + diagonal_right + 1 < seqlen_k ? row + diagonal_right + 1 : seqlen_k;",
         "return row + diagonal_right + 1 < seqlen_k ? row + diagonal_right + 1 : seqlen_k + 1;"),
        ("the diagonal off by one", "layout/block_range.h",
         "return row + diagonal_right + 1 < seqlen_k ? row + diagonal_right + 1 : seqlen_k;",
         "return row + diagonal_right < seqlen_k ? row + diagonal_right : seqlen_k;"),
        ("the row in the mask forgets its second half", "cuda/sm80",
         "const int end = mask.key_end(row + 16 * m + 8 * r) - key;", "const int end = mask.key_end(row + 16 * m) - key;"),
        ("key blocks: one too many", "layout/block_range.h",
         "range.end = (key_end + block_keys - 1) / block_keys;", "range.end = key_end / block_keys + 1;"),
        ("key blocks: the last one lost", "layout/block_range.h",
         "range.end = (key_end + block_keys - 1) / block_keys;", "range.end = key_end / block_keys;"),
        ("key blocks: a partly masked one taken for full", "layout/block_range.h",
         "range.full_end = full_key_end / block_keys;", "range.full_end = (full_key_end + block_keys - 1) / block_keys;"),
        ("swizzle on the copy's side only", "cuda/sm80",
         "ptx::ldmatrix_x4_trans(b, lane.v_block(v, step, d));", "ptx::ldmatrix_x4_trans(b, lane.v_block(v, step, d) ^ 16);"),
        ("no swizzle on either side", "layout/tile.h",
         "return page_columns() == 64 ? row % 8 : row / 2 % 4;", "return page_columns() == 64 ? 0 * row : 0;"),
        ("rows past the end are read", "cuda/sm80", "exists ? layout::kChunkBytes : 0", "layout::kChunkBytes"),
        ("O is written past the last row", "cuda/sm80",
         "if (warp.row_begin + row >= params.seqlen_q) break;", ""),
        ("LSE is written past the last row", "cuda/sm80",
         "warp.lane % 4 == 0 && warp.half == 0 && row < params.seqlen_q) {", "warp.lane % 4 == 0 && warp.half == 0) {"),
        ("LSE is written by all lanes of a quad's row", "cuda/sm80",
         "params.lse != nullptr && warp.lane % 4 == 0 &&", "params.lse != nullptr &&"),
        ("LSE in powers of two", "cuda/sm80", "ptx::lg2_approx_ftz(row_sum)) * kLn2;",
         "ptx::lg2_approx_ftz(row_sum));"),
        ("empty rows are not zero", "cuda/sm80", "rO[m][d][2 * r] = empty ? 0.0f : rO",
         "rO[m][d][2 * r] = rO"),
        ("the k-halves of A swapped", "cuda/sm80", "a[1] = ptx::cvt_pack<kDType>(rP[2 * n][2], rP[2 * n][3]);",
         "a[1] = ptx::cvt_pack<kDType>(rP[2 * n + 1][0], rP[2 * n + 1][1]);"),
        ("a packed pair the wrong way round", "cuda/sm80",
         "a[0] = ptx::cvt_pack<kDType>(rP[2 * n][0], rP[2 * n][1]);",
         "a[0] = ptx::cvt_pack<kDType>(rP[2 * n][1], rP[2 * n][0]);"),
        ("scores not cleared before a block", "cuda/sm80", "rS[m][n][i] = 0.0f;", ";"),
        ("O not rescaled", "cuda/sm80", "rO[m][d][2 * r] *= scores_scale;", ";"),
        ("the row sum not rescaled", "cuda/sm80", "row_sum[m][r] *= scores_scale;", ";"),
        ("the row maximum of half a quad", "cuda/sm80",
         "tile_max[m][r] = ptx::max_f32(tile_max[m][r], ptx::shfl_xor(tile_max[m][r], 2));", ";"),
        ("the row sum of half a quad", "cuda/sm80", "row_sum[m][r] += ptx::shfl_xor(row_sum[m][r], 2);", ";"),
        ("the pair's vote without a barrier", "cuda/sm80",
         "exceeds = ptx::barrier_red_or(kFirstPairBarrier + warp.row_group, 64, exceeds);",
         "exceeds = ptx::vote_any(exceeds);"),
        ("TMA: one tile's bytes too few expected", "cuda/sm80", "2 * kTile.bytes() + (kWithQ",
         "kTile.bytes() + (kWithQ"),
        ("TMA: the producer's phase the wrong way round", "cuda/sm80",
         "ptx::mbarrier_wait(empty_k(load_state.stage), load_state.phase ^ 1);",
         "ptx::mbarrier_wait(empty_k(load_state.stage), load_state.phase);"),
        ("TMA: the consumers' phase stands still", "cuda/sm80",
         "ptx::mbarrier_wait(full_k(read_state.stage), read_state.phase);", "ptx::mbarrier_wait(full_k(read_state.stage), 0);"),
        ("TMA: a warp too few gives a stage back", "cuda/sm80",
         "ptx::mbarrier_init(empty_k(stage), kConfig.num_warps);", "ptx::mbarrier_init(empty_k(stage), kConfig.num_warps - 1);"),
    ],
    "sm90": [
        ("wgmma_wait<1> off by one", "cuda/sm90", "ptx::wgmma_wait<1>();", "ptx::wgmma_wait<2>();"),
        ("V's chunks the wrong distance apart", "cuda/sm90",
         "kBlockN * layout::kSwizzleRowBytes);", "kWarpgroupRows * layout::kSwizzleRowBytes);"),
        ("K's chunks the wrong distance apart", "cuda/sm90",
         "layout::k_major_step(step, kBlockN)", "layout::k_major_step(step, kBlockN + 8)"),
        ("descriptor: stride of a row group wrong", "layout/hopper.h", "(kSwizzleAtomBytes >> 4) |",
         "(kSwizzleAtomBytes >> 5) |"),
        ("descriptor: no swizzle", "layout/hopper.h", "kSwizzle128 = 1", "kSwizzle128 = 0"),
        ("the first step accumulates", "cuda/sm90", "step != 0);", "true);"),
        ("a chunk's bytes too few expected", "cuda/sm90",
         "ptx::mbarrier_arrive_expect_tx(barrier, kChunks * kChunkBytes);",
         "ptx::mbarrier_arrive_expect_tx(barrier, kChunks * kChunkBytes - 128);"),
        ("the producer's phase the wrong way round", "cuda/sm90",
         "ptx::mbarrier_wait(smem + kConfig.empty_v(stage), v_position.phase ^ 1);",
         "ptx::mbarrier_wait(smem + kConfig.empty_v(stage), v_position.phase);"),
        ("an arrival too many expected of the consumers", "cuda/sm90",
         "ptx::mbarrier_init(smem + kConfig.empty_v(stage), kConsumerWarps);",
         "ptx::mbarrier_init(smem + kConfig.empty_v(stage), kConsumerWarps + 1);"),
        ("an arrival too few expected of the consumers", "cuda/sm90",
         "ptx::mbarrier_init(smem + kConfig.empty_k(stage), kConsumerWarps);",
         "ptx::mbarrier_init(smem + kConfig.empty_k(stage), kConsumerWarps - 1);"),
        ("the producer keeps more registers than there are", "cuda/sm90", "return warpgroups == 2 ? 40 :",
         "return warpgroups == 2 ? 152 :"),
        ("packed rows: the head counted within a warpgroup", "layout/packed_rows.h", "return row >> rows_log2;",
         "return row % 64 >> rows_log2;"),
        ("packed rows: the query counted across heads", "layout/packed_rows.h",
         "return row & ((1 << rows_log2) - 1);", "return row;"),
        ("packed rows: heads do not end with their group", "layout/packed_rows.h",
         "return head(row) < heads && query(row) < queries;", "return query(row) < queries;"),
        ("packed rows: queries do not end with their head", "layout/packed_rows.h",
         "return head(row) < heads && query(row) < queries;", "return head(row) < heads;"),
        ("packed rows: the K/V head counted as if it were one of Q", "cuda/sm90",
         "if constexpr (kConfig.pack_heads) return head;", ""),
        ("O of a warpgroup before the first row is stored", "cuda/sm90",
         "if (!kConfig.masked || first_row >= 0) {", "if (true) {"),
        ("LSE of rows before the first", "cuda/sm90",
         "return static_cast<uint32_t>(row) < static_cast<uint32_t>(params.seqlen_q);", "return row < params.seqlen_q;"),
        ("a block passed over takes no turn", "cuda/sm90", "if (last_has_turn || n_block != end - 1) {", "if (last_has_turn) {"),
        ("the first block passed over takes a turn", "cuda/sm90", "if (last_has_turn || n_block != end - 1) {", "if (true) {"),
        ("repaired rows are written past Dv", "cuda/sm90", "if (column >= params.head_dim_v) return;", ""),
        ("repaired rows forget the head", "cuda/sm90", "head * params.o_strides.head +\n", "0 * params.o_strides.head +\n"),
        ("a chunk of O overwritten before TMA has read it", "cuda/sm90",
         "ptx::tma_store_wait_read<kConfig.o_stages - 1>();", "ptx::tma_store_wait_read<kConfig.o_stages>();"),
        ("Q is given back before its last product", "cuda/sm90",
         "    first_block(n_block, range, range.end != tile_end);",
         "    first_block(n_block, range, range.end != tile_end);\n    if constexpr (kConfig.o_stages > 0) release_q();"),
        ("Q is never given back", "cuda/sm90",
         "    if constexpr (kConfig.o_stages > 0) release_q();\n    wait_v();",
         "    wait_v();"),
        ("V of a block passed over is not given back", "cuda/sm90",
         "if (kConfig.skip_blocks && range.end != tile_end) pass_over_v();", ""),
        ("K is given back before its product is done", "cuda/sm90",
         "ptx::wgmma_wait<1>();\n    ptx::pin_registers(rS);\n    release_k();",
         "release_k();\n    ptx::wgmma_wait<1>();\n    ptx::pin_registers(rS);"),
    ],
}


def removals(source, family):
    """One mutant for every call to be removed in the kernel files of the family."""
    for path in sorted((source / "cuda" / family).glob("*.cuh")):
        text = path.read_text()
        names = "|".join(REMOVED[family])
        pattern = re.compile(r"(?:ptx::)?\b(" + names + r")(?:<[^;{}()]*>)?\([^;{}]*\);")
        for match in pattern.finditer(text):
            line_start = text.rfind("\n", 0, match.start()) + 1
            if "//" in text[line_start:match.start()] or "void " + match.group(1) in text[line_start:match.end()]:
                continue
            line = text.count("\n", 0, match.start()) + 1
            relative = path.relative_to(source)
            name = f"without {match.group(1)}, {family}/{path.name}:{line}"
            why = None
            for of_family, around, reason in HARMLESS:
                hit = re.search(around, text) if of_family == family else None
                if hit and hit.start() <= match.start() < hit.end() + 1:
                    why = reason
            yield name, relative, text[:match.start()] + ";" + text[match.end():], why


def named(source, family):
    for name, place, old, new in NAMED[family]:
        paths = [source / place]
        if paths[0].is_dir():
            paths = sorted([*paths[0].glob("*.cuh"), *paths[0].glob("*.h")])
        hits = [(path, path.read_text()) for path in paths if old in path.read_text()]
        if len(hits) == 1 and hits[0][1].count(old) == 1:
            yield name, hits[0][0].relative_to(source), hits[0][1].replace(old, new), None
        else:
            yield name, pathlib.Path(place), None, None


PRELUDE = "mutant_prelude.h"


def compiler_flags(arguments):
    return [*arguments.flags.split(), "-O0", "-fPIC", "-w"]


def compile_prelude(arguments):
    """What no mutant changes, compiled once."""
    arguments.build.mkdir(parents=True, exist_ok=True)
    prelude = arguments.build / PRELUDE
    prelude.write_text('#include "lane_machine/cuda_builtins.h"\n#include "forward_run.h"\n')
    subprocess.run([arguments.compiler, *compiler_flags(arguments), "-x", "c++-header", str(prelude), "-o",
                    f"{prelude}.gch"], check=True)


def build_and_run(arguments, directory, family, changed):
    """Returns (caught by, detail)."""
    shutil.rmtree(directory, ignore_errors=True)  # an earlier run's mutant must not shine through
    directory.mkdir(parents=True)
    if changed is not None:
        target = directory / changed[0]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(changed[1])
    unit = directory / "rows.cc"
    unit.write_text(ROWS[family])
    shared = directory / "rows.so"
    command = [arguments.compiler, "-include", str(arguments.build / PRELUDE), "-I", str(directory),
               *compiler_flags(arguments), "-shared", str(unit), "-o", str(shared)]
    compiled = subprocess.run(command, capture_output=True, text=True)
    if compiled.returncode != 0:
        first = next((l for l in compiled.stderr.splitlines() if "error" in l), compiled.stderr[:200])
        return "compiler", first
    run = [arguments.runner, "--load", str(shared), "--schedules", "2"]
    kernels = re.findall(r"_ROW\((\w+),", ROWS[family])
    for kernel in kernels:
        run += ["--kernel", kernel]
    for case in CASES:
        run += ["--case", case]
    try:
        result = subprocess.run(run, capture_output=True, text=True, timeout=arguments.timeout)
    except subprocess.TimeoutExpired:
        return "time limit", f"{arguments.timeout} s"
    finally:
        shared.unlink()
    if result.returncode == 0:
        return None, ""
    if result.returncode < 0:
        return "crash", f"signal {-result.returncode}"
    lines = result.stdout.splitlines()
    at = next((i for i, line in enumerate(lines) if line.startswith("FAIL")), None)
    if at is None:
        return "runner", (result.stderr or result.stdout)[-200:]
    kinds = []
    for line in lines[at + 1:]:
        kind = re.match(r"\[([^\]]+)\]", line)
        if kind and kind.group(1) not in kinds:
            kinds.append(kind.group(1))
    return ", ".join(kinds), lines[at].replace("FAIL  ", "")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=pathlib.Path, required=True, help="the src directory")
    parser.add_argument("--build", type=pathlib.Path, required=True, help="where mutants are written")
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--flags", required=True, help="of kernel files, one string")
    parser.add_argument("--runner", required=True, help="lane_machine_run")
    parser.add_argument("--family", choices=["sm80", "sm90"], required=True)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=int, default=900, help="seconds for one mutant's runs")
    parser.add_argument("--only", default="", help="a regular expression on names")
    arguments = parser.parse_args()

    family = arguments.family
    mutants = [*removals(arguments.source, family), *named(arguments.source, family)]
    mutants = [m for m in mutants if re.search(arguments.only, m[0])]

    def work(job):
        number, mutant = job
        if mutant is None:
            return build_and_run(arguments, arguments.build / f"{family}_unchanged", family, None)
        name, relative, text, why = mutant
        if text is None:
            return "stale", "the text to replace does not occur exactly once"
        if why is not None:
            return "harmless", why
        return build_and_run(arguments, arguments.build / f"{family}_{number}", family, (relative, text))

    compile_prelude(arguments)
    bad = 0
    jobs = [(0, None)] + [(i + 1, m) for i, m in enumerate(mutants)]
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for (number, mutant), (caught, detail) in zip(jobs, pool.map(work, jobs)):
            if mutant is None:
                if caught is not None:
                    print(f"the unchanged kernels fail: {caught}: {detail}")
                    return 1
                continue
            wrong = caught in (None, "stale", "compiler", "runner")
            bad += wrong
            print(f"{'BAD ' if wrong else 'ok  '} {mutant[0]}: {caught or 'SURVIVED'}"
                  f"{'  <- ' + detail if detail else ''}", flush=True)
    caught_count = len(mutants) - bad
    print(f"{len(mutants)} mutants of {family}, {caught_count} as they should be, {bad} not")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
