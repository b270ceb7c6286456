// Few query rows under grouped heads: the rows of several query heads in one row tile.
#pragma once

#include <cstdint>

#include "layout/host_device.h"

namespace tilefold::layout {

// The heads that share one K/V head, as a single run of rows: head 0's queries, head 1's, and so
// on. A head takes 2^rows_log2 rows, the power of two at or above its number of queries; the rows
// beyond that number exist in tiles only. So the heads of a run of 64 rows are a box of TMA's: it
// zero-fills those rows, and the heads beyond the group, on loads, and leaves them out of stores.
struct PackedRows {
  int32_t heads = 1;    // of the group
  int32_t queries = 1;  // of a head, 1 to 2^rows_log2
  int32_t rows_log2 = 0;

  PackedRows() = default;
  TILEFOLD_HOST_DEVICE constexpr PackedRows(int32_t heads_of_group, int32_t queries_of_head)
      : heads(heads_of_group), queries(queries_of_head) {
    while ((1 << rows_log2) < queries) ++rows_log2;
  }

  TILEFOLD_HOST_DEVICE constexpr int32_t rows_of_head() const { return 1 << rows_log2; }
  TILEFOLD_HOST_DEVICE constexpr int64_t rows() const { return int64_t{heads} << rows_log2; }

  TILEFOLD_HOST_DEVICE constexpr int32_t head(int32_t row) const { return row >> rows_log2; }
  TILEFOLD_HOST_DEVICE constexpr int32_t query(int32_t row) const {
    return row & ((1 << rows_log2) - 1);
  }
  // Whether the row is some head's query.
  TILEFOLD_HOST_DEVICE constexpr bool exists(int32_t row) const {
    return head(row) < heads && query(row) < queries;
  }
};

}  // namespace tilefold::layout
