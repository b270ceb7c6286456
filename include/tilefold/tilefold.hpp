// The C++20 interface of tilefold: exact attention on tensors given by pointer, shape and strides.
//
// Header-only over the C interface (tilefold.h), which holds the contract; what follows adds types
// that own their shapes, workspace that grows by itself, and exceptions instead of statuses.
//
//   std::vector<float> q(1 * 8 * 1024 * 64), k = ..., v = ..., o(q.size());
//   const tilefold::Extents shape = {1, 8, 1024, 64};                     // [B, H, N, D]
//   tilefold::forward({q.data(), shape}, {k.data(), shape}, {v.data(), shape}, {o.data(), shape},
//                     {.causal = tilefold::Causal::kTopLeft});
//
// Nothing here allocates device memory, waits for a device, prints or exits.
#pragma once

#if __cplusplus <= 201703L
#error "tilefold.hpp needs C++20 (-std=c++20)"
#endif

#include <tilefold/tilefold.h>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <new>
#include <optional>
#include <ranges>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace tilefold {

/// A call that failed: nothing was launched and no output was written.
class Error : public std::runtime_error {
 public:
  /// \param status   What the C interface returned.
  /// \param sentence What was wrong: the argument, its value, and what is accepted.
  Error(tilefold_status status, const std::string& sentence)
      : std::runtime_error(sentence), status_(status) {}

  /// The status that the C interface returned; what() is the sentence.
  tilefold_status status() const noexcept { return status_; }

 private:
  tilefold_status status_;
};

namespace detail {

// The sentence is thread-local to the library, so it is copied at once.
inline void throw_if_failed(tilefold_status status) {
  if (status != TILEFOLD_OK) throw Error(status, tilefold_last_error());
}

}  // namespace detail

/// Which keys a query may see; i is the query row, j the key, Nq and Nk the lengths.
enum class Causal : int32_t {
  kNone = TILEFOLD_CAUSAL_NONE,                ///< Every key.
  kTopLeft = TILEFOLD_CAUSAL_TOP_LEFT,         ///< j <= i.
  kBottomRight = TILEFOLD_CAUSAL_BOTTOM_RIGHT  ///< j <= i + Nk - Nq: the last query sees every key.
};

/// Where the diagonal of the window lies.
enum class WindowAlign : int32_t {
  kAuto = TILEFOLD_WINDOW_ALIGN_AUTO,                ///< As the causal mask; top-left without one.
  kTopLeft = TILEFOLD_WINDOW_ALIGN_TOP_LEFT,         ///< Row i's window is centred on key i.
  kBottomRight = TILEFOLD_WINDOW_ALIGN_BOTTOM_RIGHT  ///< ... on key i + Nk - Nq.
};

/// The LSE of a row that sees no key.
enum class EmptyRowLse : int32_t {
  kPositiveInfinity = TILEFOLD_EMPTY_ROW_LSE_POSITIVE_INFINITY,  ///< FlashAttention-2's convention.
  kNegativeInfinity = TILEFOLD_EMPTY_ROW_LSE_NEGATIVE_INFINITY   ///< Neutral in merges.
};

/// The type of a tensor's elements.
enum class DataType : int32_t {
  kFloat32,  ///< IEEE binary32; CPU and the generic CUDA kernel.
  kFloat16,  ///< IEEE binary16.
  kBFloat16  ///< The upper half of a binary32.
};

/// Size of an element, bytes.
constexpr int64_t size_in_bytes(DataType type) { return type == DataType::kFloat32 ? 4 : 2; }

/// "float32", "float16" or "bfloat16".
constexpr const char* to_string(DataType type) {
  switch (type) {
    case DataType::kFloat32: return "float32";
    case DataType::kFloat16: return "float16";
    case DataType::kBFloat16: return "bfloat16";
  }
  return "unknown";
}

/// Where a tensor's memory lies.
struct Device {
  DLDeviceType type = kDLCPU;  ///< kDLCPU or kDLCUDA.
  int32_t id = 0;              ///< Number among the devices of that type.

  /// Host memory.
  static constexpr Device cpu() { return {kDLCPU, 0}; }
  /// Memory of CUDA device `id`, as the CUDA runtime numbers them.
  static constexpr Device cuda(int32_t id = 0) { return {kDLCUDA, id}; }

  friend constexpr bool operator==(const Device&, const Device&) = default;
};

/// Up to 8 integers: a shape or strides. Made from a braced list, or from any range of integers.
class Extents {
 public:
  static constexpr size_t kMaxRank = 8;

  Extents() = default;
  Extents(std::initializer_list<int64_t> values) { assign(values); }
  template <std::ranges::sized_range Range>
  requires std::integral<std::ranges::range_value_t<Range>> &&
      (!std::same_as<std::remove_cvref_t<Range>, Extents>)
          Extents(const Range& values) {  // NOLINT: a shape converts
    assign(values);
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const int64_t* data() const { return values_.data(); }
  int64_t* data() { return values_.data(); }
  int64_t operator[](size_t axis) const { return values_[axis]; }
  int64_t& operator[](size_t axis) { return values_[axis]; }
  const int64_t* begin() const { return values_.data(); }
  const int64_t* end() const { return values_.data() + size_; }

 private:
  template <typename Range>
  void assign(const Range& values) {
    if (values.size() > kMaxRank) {
      throw Error(
          TILEFOLD_ERROR_INVALID_ARGUMENT,
          "a shape or strides of " + std::to_string(values.size()) + " axes; accepted: at most 8");
    }
    for (const auto value : values) values_[size_++] = static_cast<int64_t>(value);
  }

  std::array<int64_t, kMaxRank> values_ = {};
  size_t size_ = 0;
};

/// Memory seen as a tensor, for reading. Owns its shape and strides, never the memory.
///
/// Copies are independent and cheap (no allocation). Strides are in elements; none given means
/// contiguous. Any int64 strides are taken; the stride of an axis of length 1 is ignored.
class ConstTensor {
 public:
  /// \param data    First element, aligned to its type (16 bytes reach the fast CUDA kernels); may
  ///                be null for a tensor with no elements. It must outlive every call that uses it.
  /// \param type    The type of the elements.
  /// \param shape   Extents, outermost first: [B, H, N, D] for q, k, v and o, [B, Hq, Nq] for lse.
  /// \param strides As many as `shape`, in elements; empty: contiguous.
  /// \param device  Where `data` points.
  /// \throws Error  If `strides` is neither empty nor as long as `shape`.
  ConstTensor(const void* data, DataType type, const Extents& shape, const Extents& strides = {},
              Device device = Device::cpu())
      : data_(const_cast<void*>(data)),
        type_(type),
        shape_(shape),
        strides_(strides),
        device_(device) {
    if (!strides.empty() && strides.size() != shape.size()) {
      throw Error(TILEFOLD_ERROR_INVALID_ARGUMENT,
                  "strides of " + std::to_string(strides.size()) + " axes for a shape of " +
                      std::to_string(shape.size()) + "; accepted: none, or one for each axis");
    }
  }

  /// The same for float32 memory.
  ConstTensor(const float* data, const Extents& shape, const Extents& strides = {},
              Device device = Device::cpu())
      : ConstTensor(data, DataType::kFloat32, shape, strides, device) {}

  DataType type() const { return type_; }
  const Extents& shape() const { return shape_; }
  Device device() const { return device_; }
  const void* data() const { return data_; }

  /// Number of elements.
  int64_t num_elems() const {
    int64_t count = 1;
    for (const int64_t extent : shape_) count *= extent;
    return count;
  }

  /// The strides, in elements, spelled out also where none were given.
  Extents strides() const {
    if (!strides_.empty()) return strides_;
    Extents contiguous = shape_;
    int64_t stride = 1;
    for (size_t axis = shape_.size(); axis-- > 0;) {
      contiguous[axis] = stride;
      stride *= shape_[axis] > 1 ? shape_[axis] : 1;
    }
    return contiguous;
  }

  /// The same memory with two axes swapped: [B, N, H, D] storage seen as [B, H, N, D].
  ConstTensor swap_axes(size_t first, size_t second) const {
    ConstTensor swapped = *this;
    swapped.swap_in_place(first, second);
    return swapped;
  }

  /// The DLTensor that the C interface takes. It points into this object: valid while this lives,
  /// unchanged. Only outputs may be written through its `data`.
  DLTensor dl_tensor() const {
    DLTensor tensor = {};
    tensor.data = data_;
    tensor.device.device_type = device_.type;
    tensor.device.device_id = device_.id;
    tensor.ndim = static_cast<int32_t>(shape_.size());
    tensor.dtype.code = static_cast<uint8_t>(type_ == DataType::kBFloat16 ? kDLBfloat : kDLFloat);
    tensor.dtype.bits = static_cast<uint8_t>(8 * size_in_bytes(type_));
    tensor.dtype.lanes = 1;
    tensor.shape = const_cast<int64_t*>(shape_.data());
    tensor.strides = strides_.empty() ? nullptr : const_cast<int64_t*>(strides_.data());
    tensor.byte_offset = 0;
    return tensor;
  }

 protected:
  void swap_in_place(size_t first, size_t second) {
    if (first >= shape_.size() || second >= shape_.size()) {
      throw Error(TILEFOLD_ERROR_INVALID_ARGUMENT,
                  "swap_axes: axes " + std::to_string(first) + " and " + std::to_string(second) +
                      " of a tensor of rank " + std::to_string(shape_.size()));
    }
    strides_ = strides();
    std::swap(shape_[first], shape_[second]);
    std::swap(strides_[first], strides_[second]);
  }

  void* data_;
  DataType type_;
  Extents shape_;
  Extents strides_;  // empty: contiguous
  Device device_;
};

/// Memory seen as a tensor, for writing. Converts to ConstTensor, never the other way.
class Tensor : public ConstTensor {
 public:
  /// As ConstTensor's constructor. No two elements of an output may share memory.
  Tensor(void* data, DataType type, const Extents& shape, const Extents& strides = {},
         Device device = Device::cpu())
      : ConstTensor(data, type, shape, strides, device) {}

  /// The same for float32 memory.
  Tensor(float* data, const Extents& shape, const Extents& strides = {},
         Device device = Device::cpu())
      : ConstTensor(data, DataType::kFloat32, shape, strides, device) {}

  void* data() const { return data_; }

  /// The same memory with two axes swapped: [B, N, H, D] storage seen as [B, H, N, D].
  Tensor swap_axes(size_t first, size_t second) const {
    Tensor swapped = *this;
    swapped.swap_in_place(first, second);
    return swapped;
  }
};

/// Options of a call; the defaults are those of tilefold_options_init(). Made to be written with
/// designated initialisers: `{.causal = Causal::kTopLeft, .window_left = 256}`.
struct Options {
  Causal causal = Causal::kNone;              ///< The causal mask.
  std::optional<float> scale = std::nullopt;  ///< Any finite number; none: 1/sqrt(D).
  EmptyRowLse empty_row_lse = EmptyRowLse::kPositiveInfinity;  ///< The LSE of a row with no key.
  int64_t window_left = -1;   ///< Keys before the window's diagonal that a row sees; -1: all.
  int64_t window_right = -1;  ///< Keys after it that a row sees; -1: all.
  WindowAlign window_align = WindowAlign::kAuto;  ///< Where the window's diagonal lies.
  int32_t num_threads = 0;                        ///< CPU only; 0: as OpenMP decides.
  std::string kernel = {};  ///< Kernel row to use, see kernels(); empty: the library chooses.

  /// The C struct. It points to `kernel`: valid while this lives, unchanged.
  tilefold_options c_options() const {
    tilefold_options options;
    detail::throw_if_failed(tilefold_options_init(&options, sizeof(options)));
    options.causal = static_cast<int32_t>(causal);
    options.has_scale = scale.has_value() ? 1 : 0;
    options.scale = scale.value_or(0.0f);
    options.empty_row_lse = static_cast<int32_t>(empty_row_lse);
    options.window_left = window_left;
    options.window_right = window_right;
    options.window_align = static_cast<int32_t>(window_align);
    options.num_threads = num_threads;
    options.kernel = kernel.empty() ? nullptr : kernel.c_str();
    return options;
  }
};

/// Scratch memory that grows to what the calls made with it need, and is freed with it.
///
/// One Workspace serves one call at a time: calls that may overlap (threads, streams) take one
/// each. After the largest problem has been seen, calls allocate nothing. Movable, not copyable.
class Workspace {
 public:
  static constexpr size_t kAlignment = 256;  ///< Bytes; what the C interface asks for.

  /// Host memory, for tensors on the CPU.
  Workspace()
      : Workspace(
            Device::cpu(),
            [](size_t bytes) { return ::operator new(bytes, std::align_val_t(kAlignment)); },
            [](void* memory) { ::operator delete(memory, std::align_val_t(kAlignment)); }) {}

  /// Memory from the caller's allocator, for tensors on `device`.
  ///
  /// \param allocate   Returns memory on `device` aligned to kAlignment, or throws.
  /// \param deallocate Frees it. It is called when the workspace grows and when it dies: where
  /// calls
  ///                   may still be in flight then, it must be safe (cudaFree and cudaFreeAsync on
  ///                   the calls' stream are).
  Workspace(Device device, std::function<void*(size_t)> allocate,
            std::function<void(void*)> deallocate)
      : device_(device), allocate_(std::move(allocate)), deallocate_(std::move(deallocate)) {}

  Workspace(Workspace&& other) noexcept
      : device_(other.device_),
        allocate_(std::move(other.allocate_)),
        deallocate_(std::move(other.deallocate_)),
        data_(std::exchange(other.data_, nullptr)),
        size_bytes_(std::exchange(other.size_bytes_, 0)) {}
  Workspace& operator=(Workspace&& other) noexcept {
    std::swap(device_, other.device_);
    allocate_.swap(other.allocate_);
    deallocate_.swap(other.deallocate_);
    std::swap(data_, other.data_);
    std::swap(size_bytes_, other.size_bytes_);
    return *this;
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace() { release(); }

  /// Makes at least `bytes` available; contents are not kept. \throws What the allocator throws.
  void reserve(size_t bytes) {
    if (bytes <= size_bytes_) return;
    release();
    data_ = allocate_(bytes);
    size_bytes_ = bytes;
  }

  void* data() const { return data_; }
  size_t size_bytes() const { return size_bytes_; }
  Device device() const { return device_; }

 private:
  void release() noexcept {
    if (data_ != nullptr) deallocate_(data_);
    data_ = nullptr;
    size_bytes_ = 0;
  }

  Device device_;
  std::function<void*(size_t)> allocate_;
  std::function<void(void*)> deallocate_;
  void* data_ = nullptr;
  size_t size_bytes_ = 0;
};

/// Which kernel a problem runs on, and why.
struct Explanation {
  /// What dispatch said of one row of the table.
  struct Row {
    std::string kernel;  ///< The row's name.
    std::string reason;  ///< Why it was chosen, could have been, or cannot serve the problem.
  };
  std::string kernel;     ///< The kernel that forward() runs; "none" if no kernel serves it.
  std::vector<Row> rows;  ///< Every row of the table, in order of priority.
  std::string text;       ///< The same as tilefold_explain() writes it, a line each.
};

namespace detail {

// The arguments of a call as the C interface takes them. Points into what it was made from.
struct Call {
  Call(const ConstTensor& q_in, const ConstTensor& k_in, const ConstTensor& v_in,
       const Tensor& o_out, const Tensor* lse_out, const Options& options_in)
      : q(q_in.dl_tensor()),
        k(k_in.dl_tensor()),
        v(v_in.dl_tensor()),
        o(o_out.dl_tensor()),
        options(options_in.c_options()) {
    if (lse_out != nullptr) lse = lse_out->dl_tensor();
  }

  const DLTensor* lse_or_null() const { return lse ? &*lse : nullptr; }

  size_t workspace_bytes() const {
    size_t bytes = 0;
    throw_if_failed(
        tilefold_forward_workspace_bytes(&q, &k, &v, &o, lse_or_null(), &options, &bytes));
    return bytes;
  }

  void forward(Workspace* workspace, Device device, void* stream) const {
    void* memory = nullptr;
    size_t bytes = 0;
    if (workspace != nullptr && (bytes = workspace_bytes()) > 0) {
      if (workspace->device() != device) {
        throw Error(TILEFOLD_ERROR_WORKSPACE,
                    "workspace: it is on another device than q; make one with "
                    "Workspace(q.device(), allocate, deallocate)");
      }
      workspace->reserve(bytes);
      memory = workspace->data();
      bytes = workspace->size_bytes();
    }
    throw_if_failed(
        tilefold_forward(&q, &k, &v, &o, lse_or_null(), &options, memory, bytes, stream));
  }

  Explanation explain() const {
    size_t needed = 0;
    throw_if_failed(tilefold_explain(&q, &k, &v, &o, lse_or_null(), &options, nullptr, 0, &needed));
    Explanation explanation;
    explanation.text.resize(needed);  // the NUL that is written lands in the last character
    throw_if_failed(tilefold_explain(&q, &k, &v, &o, lse_or_null(), &options,
                                     explanation.text.data(), needed, nullptr));
    explanation.text.resize(std::char_traits<char>::length(explanation.text.c_str()));
    std::string_view rest = explanation.text;
    for (bool first = true; !rest.empty(); first = false) {
      const std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(rest.size(), line.size() + 1));
      if (first) {
        explanation.kernel = line;
        continue;
      }
      const size_t colon = line.find(": ");
      // A kernel's name has no space: another line is prose (why no kernel serves the problem).
      if (colon == std::string_view::npos || line.find(' ') < colon) continue;
      explanation.rows.push_back(
          {std::string(line.substr(0, colon)), std::string(line.substr(colon + 2))});
    }
    return explanation;
  }

  DLTensor q, k, v, o;
  std::optional<DLTensor> lse;
  tilefold_options options;
};

}  // namespace detail

/// Attention, forward: O = softmax(scale * Q K^T + mask) V.
///
/// \param q         [B, Hq, Nq, D]    float32, float16 or bfloat16.
/// \param k         [B, Hkv, Nk, D]   the type and device of q; Hq a multiple of Hkv.
/// \param v         [B, Hkv, Nk, Dv]  the type and device of q.
/// \param o         [B, Hq, Nq, Dv]   the type and device of q; written; overlaps no other tensor.
/// \param options   Mask, scale, kernel.
/// \param workspace Grown to what the call needs; null is enough where workspace_bytes() says 0.
/// \param stream    A cudaStream_t on which CUDA work is enqueued (null: the default stream).
/// \throws Error    With the C interface's status and sentence; outputs are untouched then.
///
/// Strides, alignment, masks and determinism are as tilefold_forward() in tilefold.h says. Safe to
/// call from several threads with a workspace each. Allocates nothing on a workspace large enough.
inline void forward(const ConstTensor& q, const ConstTensor& k, const ConstTensor& v,
                    const Tensor& o, const Options& options = {}, Workspace* workspace = nullptr,
                    void* stream = nullptr) {
  detail::Call(q, k, v, o, nullptr, options).forward(workspace, q.device(), stream);
}

/// The same, which also writes the log-sum-exp of each row's visible logits.
///
/// \param lse [B, Hq, Nq] float32 on the device of q; natural logarithm; written.
inline void forward(const ConstTensor& q, const ConstTensor& k, const ConstTensor& v,
                    const Tensor& o, const Tensor& lse, const Options& options = {},
                    Workspace* workspace = nullptr, void* stream = nullptr) {
  detail::Call(q, k, v, o, &lse, options).forward(workspace, q.device(), stream);
}

/// Workspace that forward() needs for the same arguments, bytes; often 0. \throws Error As it does.
inline size_t workspace_bytes(const ConstTensor& q, const ConstTensor& k, const ConstTensor& v,
                              const Tensor& o, const Options& options = {}) {
  return detail::Call(q, k, v, o, nullptr, options).workspace_bytes();
}

/// The same with lse.
inline size_t workspace_bytes(const ConstTensor& q, const ConstTensor& k, const ConstTensor& v,
                              const Tensor& o, const Tensor& lse, const Options& options = {}) {
  return detail::Call(q, k, v, o, &lse, options).workspace_bytes();
}

/// Tells which kernel forward() would run for the same arguments, and why not the others.
/// \throws Error For unsound arguments; that no kernel serves sound ones is an answer ("none").
inline Explanation explain(const ConstTensor& q, const ConstTensor& k, const ConstTensor& v,
                           const Tensor& o, const Options& options = {}) {
  return detail::Call(q, k, v, o, nullptr, options).explain();
}

/// The same with lse.
inline Explanation explain(const ConstTensor& q, const ConstTensor& k, const ConstTensor& v,
                           const Tensor& o, const Tensor& lse, const Options& options = {}) {
  return detail::Call(q, k, v, o, &lse, options).explain();
}

/// A device that tensors may lie on; the fields are those of tilefold_device_info.
struct DeviceInfo {
  Device device;                    ///< What a tensor on it carries.
  std::string name;                 ///< The processor's name.
  int32_t compute_capability = 0;   ///< 10 * major + minor (90 for Hopper); 0 for the CPU.
  int32_t num_multiprocessors = 0;  ///< For the CPU, hardware threads.
  int64_t shared_memory_bytes = 0;  ///< Most shared memory of one thread block; 0 for the CPU.
  int64_t l2_bytes = 0;             ///< Last-level cache; 0 if unknown.
  bool usable = false;              ///< Whether this build can run on it.
  std::string note;                 ///< Instruction set in use, or why it is not usable.
};

/// A compiled kernel; the fields are those of tilefold_kernel_info.
struct KernelInfo {
  std::string name;                 ///< As Options::kernel and TILEFOLD_FORCE_KERNEL take it.
  std::string backend;              ///< "cpu", "sm80", "sm90" or "generic".
  std::string dtypes;               ///< Comma-separated.
  int32_t head_dim = 0;             ///< Largest D of its tile; 0: any.
  int32_t head_dim_v = 0;           ///< Largest Dv of its tile; 0: any.
  int32_t block_m = 0;              ///< Query rows of a tile; 0: chosen at run time.
  int32_t block_n = 0;              ///< Key rows of a tile; 0: chosen at run time.
  int32_t num_stages = 0;           ///< K/V tiles in flight; 0: does not apply.
  int32_t num_threads = 0;          ///< Threads of a CTA; 0: does not apply.
  int32_t shared_memory_bytes = 0;  ///< Shared memory of a CTA.
};

/// The devices: the CPU first, then the CUDA devices that the driver shows. \throws Error
inline std::vector<DeviceInfo> devices() {
  std::vector<DeviceInfo> list;
  const int32_t count = tilefold_device_count();
  for (int32_t index = 0; index < count; ++index) {
    tilefold_device_info info = {};
    info.struct_bytes = sizeof(info);
    detail::throw_if_failed(tilefold_get_device_info(index, &info));
    list.push_back({{info.device.device_type, static_cast<int32_t>(info.device.device_id)},
                    info.name,
                    info.compute_capability,
                    info.num_multiprocessors,
                    info.shared_memory_bytes,
                    info.l2_bytes,
                    info.usable != 0,
                    info.note});
  }
  return list;
}

/// The compiled kernels, in the order dispatch prefers them. \throws Error
inline std::vector<KernelInfo> kernels() {
  std::vector<KernelInfo> list;
  const int32_t count = tilefold_kernel_count();
  for (int32_t index = 0; index < count; ++index) {
    tilefold_kernel_info info = {};
    info.struct_bytes = sizeof(info);
    detail::throw_if_failed(tilefold_get_kernel_info(index, &info));
    list.push_back({info.name, info.backend, info.dtypes, info.head_dim, info.head_dim_v,
                    info.block_m, info.block_n, info.num_stages, info.num_threads,
                    info.shared_memory_bytes});
  }
  return list;
}

/// The library's version, "major.minor.patch", which may be newer than this header's.
inline std::string_view version() { return tilefold_version(); }

}  // namespace tilefold
