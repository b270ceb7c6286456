// The qualifier of functions that both the host and the GPU call.
#pragma once

#if defined(__CUDACC__)
#define TILEFOLD_HOST_DEVICE __host__ __device__
#else
#define TILEFOLD_HOST_DEVICE
#endif
