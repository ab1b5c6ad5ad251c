// Which experts a token goes to: too little work to need vector instructions.
#pragma once

#include <cstdint>

#include "contract/types.h"

namespace inferno {

// Of each row of logits [T, X] the highest `num_chosen`, by rank, the lower index first among
// equals: experts [T][A]. Weights [T][A] are the softmax over the chosen where `renormalize`, else
// over all. NaN ranks highest, as in PyTorch's sort.
void route(const Rows& logits, std::int64_t num_chosen, bool renormalize, std::int64_t* experts,
           float* weights);

}  // namespace inferno
