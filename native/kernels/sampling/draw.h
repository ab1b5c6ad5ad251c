// Tokens from rows of logits. A row's result depends on that row alone, and sums of weights are
// exact, so it is the same whoever shares the batch and however many threads work.
#pragma once

#include <cstdint>
#include <vector>

#include "contract/kernels.h"

namespace inferno {

// How one row's token is drawn: from the top p of the top k of those that min-p leaves. These are
// the fields of ops/drawing.py's SamplingSpec, in its order, which Python hands over as numbers.
struct SamplingSpec {
    double temperature;  // 0: not drawn
    double top_k;        // 0: off
    double top_p;        // 1: off
    double min_p;
};

// Which tokens of rows may be chosen: bit t % 32 of a row's word t / 32 is the token t. Rows follow
// one another; a null pointer allows all tokens of all rows. Others count as minus infinity.
using Allowed = const std::uint32_t*;

// Logits are float32. Each row's largest logit, NaN where it holds one, and the first token that
// has it.
void argmax(const Rows& logits, Allowed, const Kernels&, float* peaks, std::int64_t* tokens,
            Team&);

// A token for each row, by its SamplingSpec and its random number in [0, 1). Rows that are not drawn, or
// whose peak is not finite, are passed over.
void draw(const Rows& logits, Allowed, const float* peaks, const std::vector<SamplingSpec>& specs,
          const double* uniform, const Kernels&, std::int64_t* tokens, Team&);

// The logarithm of each row's sum of exponentials, less its peak.
void log_totals(const Rows& logits, const float* peaks, const Kernels&, double* out, Team&);

// The first `count` tokens of each row, ranked: [rows][count]. Zeros where a row holds NaN.
void top_tokens(const Rows& logits, std::int64_t count, const Kernels&, std::int64_t* tokens,
                Team&);

}  // namespace inferno
