// An outside C++ program over the installed library: one call, its answer checked.
#include <cstdio>
#include <tilefold/tilefold.hpp>
#include <vector>

int main() {
  const tilefold::Extents shape = {1, 1, 2, 2};
  const std::vector<float> q = {1, 0, 0, 1}, k = {1, 2, 3, 4}, v = {5, 6, 7, 8};
  std::vector<float> o(4);
  tilefold::forward({q.data(), shape}, {k.data(), shape}, {v.data(), shape}, {o.data(), shape},
                    {.window_left = 0, .window_right = 0});
  std::printf("tilefold %s: %g %g %g %g\n", tilefold_version(), o[0], o[1], o[2], o[3]);
  return o == v ? 0 : 1;
}
