// Weights are laid out in panels (types.h); nothing is rounded but float32 that becomes bfloat16.
#pragma once

#include "team.h"
#include "types.h"

namespace inferno {

// Lay rows of a weight, f32 or bf16, into `target` (Packing f32 or bf16) from output `first` on, a
// multiple of 16; their number is one too, but at the weight's end.
void pack(const Rows& source, std::int64_t first, const Weight& target, Team& team);

// Lay a whole MXFP4 weight into `target`: blocks [O][G][16] with elements 2j and 2j + 1 in byte j,
// scales [O][G].
void pack_mxfp4(const std::uint8_t* blocks, const std::uint8_t* scales, const Weight& target,
                Team& team);

}  // namespace inferno
