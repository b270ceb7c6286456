// libFuzzer on the argument checks: any five tensors and options are refused with a sentence, or
// give a problem on which every back end may rely.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <vector>

#include "core/validate.h"
#include "reference.h"

namespace {

// Takes values off the front of the input; zeros when it is used up.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  uint8_t byte() {
    if (size_ == 0) return 0;
    --size_;
    return *data_++;
  }
  int64_t word() {
    uint64_t value = 0;
    for (int i = 0; i < 8; ++i) value |= static_cast<uint64_t>(byte()) << (8 * i);
    return static_cast<int64_t>(value);
  }
  // Mostly small, sometimes an edge of the integers, sometimes anything.
  int64_t number() {
    const uint8_t kind = byte();
    if (kind < 200) return kind % 20;
    if (kind < 210) return -(kind - 199);
    if (kind < 220) return int64_t{1} << (kind - 210) * 6;
    if (kind < 225) return std::numeric_limits<int64_t>::max() - (kind - 220);
    if (kind < 230) return std::numeric_limits<int64_t>::min() + (kind - 225);
    return word();
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

struct Tensor {
  std::vector<int64_t> shape, strides;
  DLTensor dl = {};
};

void fail_if(bool wrong) {
  if (wrong) std::abort();
}

// Sound extents by default; a bit of `spoil` lets the input replace one member each.
Tensor read_tensor(Input& in, std::vector<int64_t> shape, DLDataType dtype, uint64_t address) {
  Tensor t;
  const uint8_t spoil = in.byte();
  t.shape = std::move(shape);
  if (spoil & 1) t.shape[in.byte() % t.shape.size()] = in.number();
  t.dl.ndim = static_cast<int32_t>(t.shape.size());
  if (spoil & 2) {
    for (size_t axis = 0; axis < t.shape.size(); ++axis) t.strides.push_back(in.number());
  }
  t.dl.data = reinterpret_cast<void*>(address);
  if (spoil & 4) t.dl.byte_offset = static_cast<uint64_t>(in.number());
  t.dl.dtype = dtype;
  if (spoil & 8) t.dl.dtype = {in.byte(), in.byte(), in.byte()};
  t.dl.device = {kDLCPU, 0};
  if (spoil & 16) {
    t.dl.device.device_type = static_cast<DLDeviceType>(in.byte() % 16);
    t.dl.device.device_id = in.byte() % 4;
  }
  if (spoil & 32) t.dl.data = reinterpret_cast<void*>(in.number());
  if (spoil & 64) t.dl.ndim = in.byte() % 5 == 0 ? in.byte() - 4 : t.dl.ndim;
  return t;
}

// Fixed up after the move into place: the vectors' memory.
const DLTensor* pointers(Tensor& t, bool null_shape) {
  t.dl.shape = null_shape ? nullptr : t.shape.data();
  t.dl.strides = t.strides.empty() ? nullptr : t.strides.data();
  return &t.dl;
}

void check_strides(const tilefold::Strides& s, int64_t batch, int64_t heads, int64_t rows,
                   int64_t columns, int64_t bytes) {
  if (batch == 0 || heads == 0 || rows == 0 || columns == 0) return;
  fail_if((batch == 1 && s.batch != 0) || (heads == 1 && s.head != 0) || (rows == 1 && s.row != 0));
  const __int128 reach[] = {
      static_cast<__int128>(s.batch) * (batch - 1), static_cast<__int128>(s.head) * (heads - 1),
      static_cast<__int128>(s.row) * (rows - 1), static_cast<__int128>(s.column) * (columns - 1)};
  __int128 low = 0, high = 0;
  for (const __int128 r : reach) (r < 0 ? low : high) += r;
  fail_if(high * bytes > std::numeric_limits<int64_t>::max());
  fail_if(low * bytes < std::numeric_limits<int64_t>::min());
}

void check_problem(const tilefold::ForwardProblem& p, const tilefold_options* options) {
  fail_if(p.batch < 0 || p.num_heads < 0 || p.num_heads_kv < 0 || p.seqlen_q < 0 || p.seqlen_k < 0);
  fail_if(p.head_dim < 1 || p.head_dim_v < 1);
  fail_if(p.num_heads != 0 && (p.num_heads_kv == 0 || p.num_heads % p.num_heads_kv != 0));
  fail_if(!std::isfinite(p.scale) || !std::isinf(p.empty_row_lse));
  fail_if(p.diagonal_left < -p.seqlen_q || p.diagonal_left > p.seqlen_k);
  fail_if(p.diagonal_right < -p.seqlen_q || p.diagonal_right > p.seqlen_k);
  const int64_t bytes = tilefold::dtype_bytes(p.dtype);
  check_strides(p.q_strides, p.batch, p.num_heads, p.seqlen_q, p.head_dim, bytes);
  check_strides(p.k_strides, p.batch, p.num_heads_kv, p.seqlen_k, p.head_dim, bytes);
  check_strides(p.v_strides, p.batch, p.num_heads_kv, p.seqlen_k, p.head_dim_v, bytes);
  check_strides(p.o_strides, p.batch, p.num_heads, p.seqlen_q, p.head_dim_v, bytes);
  // The two diagonals say what the options say, at the corners and beside them.
  const auto parameters = tilefold::reference::parameters_of(options);
  const auto near = [](int64_t n) {
    std::vector<int64_t> indices;
    for (const int64_t i : {int64_t{0}, int64_t{1}, n / 2, n - 2, n - 1}) {
      if (i >= 0 && i < n) indices.push_back(i);
    }
    return indices;
  };
  if (parameters.window_left > (int64_t{1} << 50) || parameters.window_right > (int64_t{1} << 50)) {
    return;
  }
  for (const int64_t i : near(p.seqlen_q)) {
    for (const int64_t j : near(p.seqlen_k)) {
      const bool sees = i + p.diagonal_left <= j && j <= i + p.diagonal_right;
      fail_if(sees != parameters.sees(i, j, p.seqlen_q, p.seqlen_k));
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input in(data, size);
  const uint8_t flags = in.byte();
  const DLDataType dtypes[] = {{kDLFloat, 32, 1}, {kDLFloat, 16, 1}, {kDLBfloat, 16, 1}};
  const DLDataType dtype = dtypes[flags % 3];
  int64_t n[7];  // B, Hkv, group, Nq, Nk, D, Dv
  for (int64_t& extent : n) extent = in.byte() % 12;
  const int64_t heads = n[1] * n[2];
  Tensor q = read_tensor(in, {n[0], heads, n[3], n[5]}, dtype, 0x10000000);
  Tensor k = read_tensor(in, {n[0], n[1], n[4], n[5]}, dtype, 0x20000000);
  Tensor v = read_tensor(in, {n[0], n[1], n[4], n[6]}, dtype, 0x30000000);
  Tensor o = read_tensor(in, {n[0], heads, n[3], n[6]}, dtype, 0x40000000);
  Tensor lse = read_tensor(in, {n[0], heads, n[3]}, dtypes[0], 0x50000000);

  // Options in exactly as many bytes as they say they have, so that a read beyond shows.
  tilefold_options options = {};
  options.struct_bytes = sizeof(options);
  options.window_left = options.window_right = -1;
  const uint8_t spoil = in.byte();
  if (spoil & 1) options.causal = static_cast<int32_t>(in.number());
  if (spoil & 2) {
    options.has_scale = static_cast<int32_t>(in.number());
    const int32_t bits = static_cast<int32_t>(in.word());
    std::memcpy(&options.scale, &bits, sizeof(bits));
  }
  if (spoil & 4) options.window_left = in.number();
  if (spoil & 8) options.window_right = in.number();
  if (spoil & 16) options.window_align = static_cast<int32_t>(in.number());
  if (spoil & 32) options.empty_row_lse = static_cast<int32_t>(in.number());
  if (spoil & 64) options.num_threads = static_cast<int32_t>(in.number());
  if (spoil & 128) options.struct_bytes = static_cast<size_t>(in.number());
  const size_t there = std::clamp<size_t>(options.struct_bytes, sizeof(size_t), 8192);
  std::vector<unsigned char> memory(there);
  std::memcpy(memory.data(), &options, std::min(there, sizeof(options)));
  for (size_t at = sizeof(options); at < there; ++at) memory[at] = in.byte() == 255 ? 1 : 0;
  const auto* given = flags & 4 ? nullptr : reinterpret_cast<tilefold_options*>(memory.data());

  tilefold::ForwardProblem problem;
  const tilefold_status status = tilefold::validate_forward(
      flags & 8 && flags & 16 ? nullptr : pointers(q, false), pointers(k, (flags & 240) == 224),
      pointers(v, false), pointers(o, false), flags & 32 ? nullptr : pointers(lse, false), given,
      &problem);
  if (status == TILEFOLD_OK) {
    check_problem(problem, given);
  } else {
    fail_if(status != TILEFOLD_ERROR_INVALID_ARGUMENT && status != TILEFOLD_ERROR_UNSUPPORTED);
    fail_if(tilefold_last_error()[0] == '\0');
  }
  return 0;
}
