// Misuse of tilefold.hpp that the compiler must catch.
#include <tilefold/tilefold.hpp>

#include <cstdint>
#include <string>
#include <vector>

void right(const float* q, float* o, const uint16_t* half) {
  const tilefold::Extents shape = {1, 1, 2, 4};
  tilefold::forward({q, shape}, {q, shape}, {q, shape}, {o, shape});
  tilefold::forward({half, tilefold::DataType::kFloat16, shape}, {q, shape}, {q, shape}, {o, shape},
                    {.causal = tilefold::Causal::kTopLeft, .scale = 0.5f});
  const tilefold::ConstTensor read_only = tilefold::Tensor(o, shape);
  tilefold::Workspace workspace;
  tilefold::Workspace moved = std::move(workspace);
  (void)read_only;
  (void)moved;
}

void misuse(const float* q, float* o, const uint16_t* half, const double* wide) {
  const tilefold::Extents shape = {1, 1, 2, 4};
  (void)q, (void)o, (void)half, (void)wide;
#if MISUSE == 1
  // MISUSE 1: no matching | invalid conversion | could not convert | no known conversion
  // An output over constant memory.
  tilefold::forward({q, shape}, {q, shape}, {q, shape}, {q, shape});
#elif MISUSE == 2
  // MISUSE 2: no matching | could not convert | no viable conversion | invalid
  // user-defined | cannot be initialized | invalid initialization An input's view given as an
  // output.
  const tilefold::ConstTensor view(o, shape);
  tilefold::forward(view, view, view, view);
#elif MISUSE == 3
  // MISUSE 3: use of deleted function | deleted
  // A workspace copied: two calls would share it.
  tilefold::Workspace one;
  tilefold::Workspace two = one;
#elif MISUSE == 4
  // MISUSE 4: no matching | could not convert
  // 16-bit memory without saying which of the two types it holds.
  tilefold::ConstTensor tensor(half, shape);
#elif MISUSE == 5
  // MISUSE 5: no matching | could not convert
  // float64 memory passed as float32.
  tilefold::ConstTensor tensor(wide, shape);
#elif MISUSE == 6
  // MISUSE 6: cannot convert | could not convert | invalid conversion | no viable conversion |
  // cannot initialize An integer where the mask's enumeration is wanted.
  tilefold::Options options{.causal = 1};
#elif MISUSE == 7
  // MISUSE 7: no matching | could not convert | no viable
  // A shape of floating-point numbers.
  tilefold::Extents extents(std::vector<double>{1.0, 2.0});
#elif MISUSE == 8
  // MISUSE 8: narrowing
  // A fractional extent.
  tilefold::Extents extents = {1, 2.5, 3, 4};
#elif MISUSE == 9
  // MISUSE 9: no matching | too many arguments | could not convert
  // The workspace by value, where a pointer says that the call may grow it.
  tilefold::Workspace workspace;
  tilefold::forward({q, shape}, {q, shape}, {q, shape}, {o, shape}, {}, workspace);
#endif
}
