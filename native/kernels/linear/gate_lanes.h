// The gated activations of sixteen lanes, in float32.
#pragma once

#include "contract/kernels.h"
#include "simd/elements.h"
#include "simd/exp.h"

namespace inferno {
namespace {

// Below it a sigmoid differs from 0 by less than 1e-38, and so does what it gates; e^88 is finite.
constexpr float kLeast = -88.0f;

// The bound comes first: where one argument is NaN, min and max return the second.
inline F one_plus_exp_minus(F x) {
    const F power = sub(zero(), max(splat(kLeast), x));
    return add(splat(1.0f), exp_within(max(splat(kLeastExponent), power)));
}

// silu(gate), rounded to the type E, times up.
template <class E>
inline F gated_by_silu(F gate, F up) {
    gate = max(splat(kLeast), gate);
    return mul(E::rounded(div(gate, one_plus_exp_minus(gate))), up);
}

// (up + 1) * gate * sigmoid(alpha * gate), of clamped values.
inline F gated_by_clamped(F gate, F up, const Activation& activation) {
    const F limit = splat(activation.limit);
    gate = max(splat(kLeast), min(limit, gate));
    up = max(sub(zero(), limit), min(limit, up));
    const F product = mul(add(up, splat(1.0f)), gate);
    return div(product, one_plus_exp_minus(mul(splat(activation.alpha), gate)));
}

template <class E>
inline F gated(F gate, F up, const Activation& activation) {
    if (activation.gate == Gate::silu) return gated_by_silu<E>(gate, up);
    return gated_by_clamped(gate, up, activation);
}

}  // namespace
}  // namespace inferno
