// Arguments of the C interface -> ForwardProblem.
#pragma once

#include "core/problem.h"
#include "core/status.h"
#include "tilefold/tilefold.h"

namespace tilefold {

// Checks every argument of a forward call and fills `problem`. On failure the last error is set,
// `problem` is unspecified and the status returned.
tilefold_status validate_forward(const DLTensor* q, const DLTensor* k, const DLTensor* v,
                                 const DLTensor* o, const DLTensor* lse,
                                 const tilefold_options* options, ForwardProblem* problem);

// The options as the caller gave them (any released size of the struct), completed with the
// defaults of the members that the caller's version did not have. `options` may be null.
tilefold_status read_options(const tilefold_options* options, tilefold_options* complete);

}  // namespace tilefold
