// What is stored is laid out in panels (contract/packings.h); nothing is rounded but float32 that
// becomes bfloat16.
#pragma once

#include "contract/packings.h"
#include "runtime/team.h"

namespace inferno {

// Lay rows of a weight, f32 or bf16, into `target`, of floats as well, from output `first` on, a
// multiple of 16; their number is one too, but at the weight's end.
void pack(const Rows& source, std::int64_t first, const Weight& target, Team& team);

// Lay a whole weight of codes into `target`, as a checkpoint stores it (stored.h): blocks [O][B], in
// the format's own bytes, and scales [O][B] where they stand apart.
void pack_stored(const std::uint8_t* codes, const std::uint8_t* scales, const Weight& target,
                 Team& team);

}  // namespace inferno
