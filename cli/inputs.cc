// q, k and v from files.
#include "cli/inputs.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "cli/failure.h"
#include "cli/flags.h"
#include "cli/io/tensor_file.h"
#include "cli/io/text.h"
#include "cli/numbers.h"

namespace tilefold::cli {
namespace {

constexpr std::array<const char*, 3> kNames = {"q", "k", "v"};

bool is_npy(const std::string& path, std::span<const std::byte> bytes) {
  if (path.ends_with(".npy")) return true;
  if (path.ends_with(".safetensors")) return false;
  constexpr std::string_view kMagic = "\x93NUMPY";
  return bytes.size() >= kMagic.size() &&
         std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) == 0;
}

// A file's tensor of that key, and where it stands for messages.
struct Found {
  FileTensor tensor;
  std::string where;  // "x.safetensors: tensor 'q'" or "q.npy"
};

Found find_tensor(const std::string& path, std::span<const std::byte> bytes, const char* name,
                  const std::string& given_key, std::map<std::string, std::string>* metadata) {
  try {
    if (is_npy(path, bytes)) {
      if (!given_key.empty()) {
        throw UsageError(fmt::format("--{}-key", name),
                         fmt::format("{} is a .npy, whose tensor has no name", path));
      }
      return {parse_npy(bytes), path};
    }
    const std::string key = given_key.empty() ? name : given_key;
    SafetensorsFile file = parse_safetensors(bytes);
    metadata->merge(file.metadata);
    const FileTensor* tensor = file.find(key);
    if (tensor == nullptr) {
      constexpr size_t kMaxListed = 8;
      std::string present;
      for (size_t i = 0; i < file.tensors.size() && i < kMaxListed; ++i) {
        present += (i > 0 ? ", " : "") + cut(file.tensors[i].name, kMostLabelChars);
      }
      if (file.tensors.size() > kMaxListed) present += ", ...";
      fail(ExitCode::kBadInput, "{}: it has no tensor '{}'; it has: {} (--{}-key names another)",
           path, key, present.empty() ? "none" : present, name);
    }
    return {*tensor, path + ": tensor '" + key + "'"};
  } catch (const BadFile& error) {
    fail(ExitCode::kBadInput, "{}: {}", path, error.what());
  }
}

// The file's tensor as [B, H, N, D], axes of length 1 added in front; misaligned data is copied.
ConstTensor as_rank_4(const Found& found, AxisOrder order,
                      std::vector<std::shared_ptr<FileBytes>>* memory) {
  const FileTensor& tensor = found.tensor;
  if (!tensor.type) {
    fail(ExitCode::kBadInput,
         "{}: its dtype is {}; accepted: F32, F16, BF16 (float32, float16, bfloat16)", found.where,
         cut(tensor.dtype, kMostLabelChars));
  }
  const size_t rank = tensor.shape.size();
  if (rank < 2 || rank > 4) {
    fail(ExitCode::kBadInput,
         "{}: its rank is {} (shape {}); accepted: 2 [N, D], 3 [{}, D], 4 [B, {}, D]", found.where,
         rank, shape_text(tensor.shape), order == AxisOrder::kBhnd ? "H, N" : "N, H",
         order == AxisOrder::kBhnd ? "H, N" : "N, H");
  }
  const std::byte* data = tensor.bytes.data();
  if (reinterpret_cast<uintptr_t>(data) % static_cast<size_t>(size_in_bytes(*tensor.type)) != 0) {
    memory->push_back(std::make_shared<FileBytes>(tensor.bytes.size()));
    std::memcpy(memory->back()->span().data(), data, tensor.bytes.size());
    data = memory->back()->span().data();
  }
  std::vector<int64_t> shape = tensor.shape;
  std::vector<int64_t> strides = tensor.strides();
  // [N, D]: the head axis goes where the order has it.
  const bool rank_2_heads_inside = rank == 2 && order == AxisOrder::kBnhd;
  if (rank_2_heads_inside) {
    shape.insert(shape.begin() + 1, 1);
    strides.insert(strides.begin() + 1, 0);
  }
  while (shape.size() < 4) {
    shape.insert(shape.begin(), 1);
    strides.insert(strides.begin(), 0);
  }
  const ConstTensor as_stored(data, *tensor.type, shape, strides);
  return order == AxisOrder::kBhnd ? as_stored : as_stored.swap_axes(1, 2);
}

}  // namespace

void InputFlags::add_to(Command* command) {
  command->arguments(
      &files, "FILE", 1, 3,
      "One .safetensors with q, k and v, or three files (.npy or .safetensors): q k v");
  command->text("--q-key", &q_key, "NAME", "Name of q in a .safetensors (default q)");
  command->text("--k-key", &k_key, "NAME", "Name of k in a .safetensors (default k)");
  command->text("--v-key", &v_key, "NAME", "Name of v in a .safetensors (default v)");
  command->text(
      "--layout", &layout, "ORDER",
      "Order of the files' axes: bhnd (default) or bnhd; a rank of 3 lacks b, of 2 b and h");
  command->text("--dtype", &dtype, "TYPE",
                "Convert the inputs first: float32, float16 or bfloat16 (default: as stored)");
}

AxisOrder InputFlags::axis_order() const {
  if (layout == "bhnd") return AxisOrder::kBhnd;
  if (layout == "bnhd") return AxisOrder::kBnhd;
  throw UsageError("--layout", fmt::format("'{}'; accepted: bhnd, bnhd", layout));
}

ConstTensor convert(const ConstTensor& tensor, DataType type,
                    std::vector<std::shared_ptr<FileBytes>>* memory) {
  if (tensor.type() == type) return tensor;
  const Extents& shape = tensor.shape();
  const Extents strides = tensor.strides();
  memory->push_back(
      std::make_shared<FileBytes>(static_cast<size_t>(tensor.num_elems() * size_in_bytes(type))));
  std::byte* to = memory->back()->span().data();
  const auto* from = static_cast<const std::byte*>(tensor.data());
  for (int64_t b = 0; b < shape[0]; ++b) {
    for (int64_t h = 0; h < shape[1]; ++h) {
      for (int64_t n = 0; n < shape[2]; ++n) {
        for (int64_t d = 0; d < shape[3]; ++d) {
          const int64_t at = b * strides[0] + h * strides[1] + n * strides[2] + d * strides[3];
          store_number(type, to,
                       load_number(tensor.type(), from + at * size_in_bytes(tensor.type())));
          to += size_in_bytes(type);
        }
      }
    }
  }
  return ConstTensor(memory->back()->span().data(), type, shape);
}

Inputs read_inputs(const InputFlags& flags) {
  if (flags.files.size() == 2) {
    throw UsageError("files", "2 files; accepted: one .safetensors, or three files q k v");
  }
  const AxisOrder order = flags.axis_order();
  const std::array<std::string, 3> keys = {flags.q_key, flags.k_key, flags.v_key};
  std::vector<std::shared_ptr<FileBytes>> memory;
  std::map<std::string, std::string> metadata;
  std::vector<Found> found;
  for (size_t i = 0; i < kNames.size(); ++i) {
    const std::string& path = flags.files.size() == 1 ? flags.files[0] : flags.files[i];
    if (flags.files.size() != 1 || i == 0) {
      memory.push_back(std::make_shared<FileBytes>(read_file(path)));
    }
    const auto bytes = std::as_const(*memory.back()).span();
    if (flags.files.size() == 1 && is_npy(path, bytes)) {
      fail(ExitCode::kBadInput,
           "{}: one .npy holds one tensor; accepted: three .npy (q k v), or one .safetensors",
           path);
    }
    found.push_back(find_tensor(path, bytes, kNames[i], keys[i], &metadata));
  }
  for (const Found& other : found) {
    if (other.tensor.shape.size() != found[0].tensor.shape.size()) {
      fail(ExitCode::kBadInput,
           "{}: its rank is {}, but q's is {}; accepted: one rank for q, k and v", other.where,
           other.tensor.shape.size(), found[0].tensor.shape.size());
    }
  }
  std::vector<ConstTensor> tensors;
  for (const Found& tensor : found) {
    // Alignment copies go to the end of `memory`: the files' bytes before them stay in place.
    tensors.push_back(as_rank_4(tensor, order, &memory));
    if (!flags.dtype.empty()) {
      tensors.back() = convert(tensors.back(), parse_data_type(flags.dtype), &memory);
    }
  }
  return {tensors[0],          tensors[1],       tensors[2], found[0].tensor.shape.size(),
          std::move(metadata), std::move(memory)};
}

}  // namespace tilefold::cli
