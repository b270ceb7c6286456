// The kernel that readies a workspace for a dynamic schedule.
#pragma once

namespace tilefold::sm90 {

// Arguments: (uint32_t* counter). One thread.
const void* reset_tile_counter_kernel();

}  // namespace tilefold::sm90
