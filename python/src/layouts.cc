// The library's index maps for tilefold.draw: pictures of the functions that the kernels call.
#include "layouts.h"

#include "layout/block_range.h"
#include "layout/fragments.h"
#include "layout/hopper.h"
#include "layout/hopper_schedule.h"
#include "layout/schedule.h"
#include "layout/tile.h"

namespace tilefold::python {
namespace {

namespace nb = nanobind;
namespace layout = tilefold::layout;

void check(bool holds, const char* sentence) {
  if (!holds) throw nb::value_error(sentence);
}

template <typename Place>
nb::tuple pair(const Place& place) {
  return nb::make_tuple(place.row, place.column);
}

nb::tuple tile(const layout::TileCoord& coord) {
  return nb::make_tuple(coord.batch_head, coord.m_block, coord.split);
}

}  // namespace

void add_layouts(nb::module_& module) {
  nb::module_ m =
      module.def_submodule("layouts", "Index maps of the CUDA kernels, from src/layout.");
  m.def("mma_m16n8k16_a",
        [](int lane, int reg, int half) { return pair(layout::mma_m16n8k16_a(lane, reg, half)); });
  m.def("mma_m16n8k16_b",
        [](int lane, int reg, int half) { return pair(layout::mma_m16n8k16_b(lane, reg, half)); });
  m.def("mma_m16n8k16_c",
        [](int lane, int reg) { return pair(layout::mma_m16n8k16_c(lane, reg)); });
  m.def("ldmatrix_x4_a", [](int lane) { return pair(layout::ldmatrix_x4_a(lane)); });
  m.def("ldmatrix_x4_b", [](int lane) { return pair(layout::ldmatrix_x4_b(lane)); });
  m.def("wgmma_accumulator",
        [](int thread, int reg) { return pair(layout::wgmma_accumulator(thread, reg)); });
  m.def("swizzle128",
        [](int row, int column, int rows) { return layout::swizzle128(row, column, rows); });
  m.def("tile_offset_bytes", [](int rows, int columns, int row, int chunk) {
    const layout::Tile shape = {rows, columns};
    check(shape.valid(), "rows must be a multiple of 8, columns of 32");
    return shape.offset_bytes(row, chunk);
  });
  m.def("block_range", [](int seqlen_k, int diagonal_left, int diagonal_right, int row_begin,
                          int row_end, int block_n) {
    check(block_n > 0, "block_n must be 1 or more");
    const layout::BlockRange range =
        layout::block_range({seqlen_k, diagonal_left, diagonal_right}, row_begin, row_end, block_n);
    return nb::make_tuple(range.begin, range.full_begin, range.full_end, range.end);
  });
  m.def("sees", [](int seqlen_k, int diagonal_left, int diagonal_right, int row, int key) {
    return layout::Mask{seqlen_k, diagonal_left, diagonal_right}.sees(row, key);
  });
  m.def("tile_of", [](int num_batch_heads, int num_m_blocks, int num_splits, uint32_t cta) {
    check(num_batch_heads > 0 && num_splits > 0, "counts must be 1 or more");
    return tile(layout::tile_of({num_batch_heads, num_m_blocks, num_splits}, cta));
  });
  m.def("tile_in_head_order", [](int index, int num_m_blocks) {
    check(num_m_blocks > 0, "num_m_blocks must be 1 or more");
    return tile(layout::tile_in_head_order(index, num_m_blocks));
  });
  m.def("tile_longest_first", [](int index, int num_m_blocks, int num_batch_heads,
                                 int section_heads, int tail_m_blocks) {
    check(num_m_blocks > 0 && num_batch_heads > 0 && section_heads > 0, "counts must be 1 or more");
    check(tail_m_blocks >= 0 && tail_m_blocks < num_m_blocks,
          "tail_m_blocks must be 0 or more, and less than num_m_blocks");
    const layout::LongestFirst order(num_batch_heads, num_m_blocks, section_heads, tail_m_blocks);
    return tile(layout::tile_of(order, static_cast<uint32_t>(index)));
  });
}

}  // namespace tilefold::python
