// Misuse of the ring of pipeline stages that the compiler must catch.
#include "layout/pipeline_state.h"

constexpr tilefold::layout::PipelineState<2> kRight;

#if MISUSE == 1
// MISUSE 1: static assertion failed | static_assert failed
// A ring without a stage.
constexpr tilefold::layout::PipelineState<0> kNone;
#endif

int main() { return kRight.stage; }
