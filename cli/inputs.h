// q, k and v from files, as [B, H, N, D] tensors on the host.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tilefold/tilefold.hpp>
#include <vector>

#include "cli/command_line.h"
#include "cli/io/files.h"

namespace tilefold::cli {

/// Order of a rank-4 file's axes, and of the outputs'.
enum class AxisOrder { kBhnd, kBnhd };

/// The options that name the inputs.
struct InputFlags {
  std::vector<std::string> files;
  std::string q_key;  // empty: the tensor is called as it is
  std::string k_key;
  std::string v_key;
  std::string layout = "bhnd";
  std::string dtype;

  void add_to(Command* command);
  AxisOrder axis_order() const;
};

/// The inputs of a call. The tensors point into `memory`.
struct Inputs {
  ConstTensor q, k, v;  // [B, H, N, D]
  size_t rank;          // of the files' tensors: 2, 3 or 4
  std::map<std::string, std::string> metadata;
  std::vector<std::shared_ptr<FileBytes>> memory;
};

/// Reads q, k and v, adds the axes that a rank of 2 or 3 lacks, and converts to --dtype.
/// \throws Failure naming the file, what was found and what is accepted
Inputs read_inputs(const InputFlags& flags);

/// `tensor` in another type, contiguous; its memory is appended to `memory`.
ConstTensor convert(const ConstTensor& tensor, DataType type,
                    std::vector<std::shared_ptr<FileBytes>>* memory);

}  // namespace tilefold::cli
