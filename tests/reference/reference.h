// The whole of the reference library: number formats, host tensors, naive attention, tolerances,
// random problems.
#pragma once

#include "attention.h"
#include "cases.h"
#include "host_tensor.h"
#include "number_formats.h"
#include "tolerance.h"
