// RMSNorm's arithmetic, which whole rows and single heads share.
#pragma once

#include "simd/elements.h"

namespace inferno {
namespace {

// 1 / sqrt(mean square + eps).
inline float rms_scale(F squares, Index width, float eps) {
    return 1.0f / __builtin_sqrtf(sum(squares) / static_cast<float>(width) + eps);
}

// The normalized value is rounded to the row's type E before it meets the weight.
template <class E>
inline F weighted(F x, float scale, const Optional& weight, Index i, Index width) {
    const F normalized = E::rounded(mul(x, splat(scale)));
    return weight.data ? mul(load_weights(weight, i, width), normalized) : normalized;
}

}  // namespace
}  // namespace inferno
