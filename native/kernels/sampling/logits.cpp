// A row of logits, as choosing a token needs it: its peaks, weights and their sums, candidates.
#include "contract/isa_functions.h"
#include "simd/elements.h"
#include "simd/exp.h"
#include "simd/wide.h"

namespace inferno::INFERNO_ISA {
namespace {

constexpr float kInfinity = __builtin_inff();

inline F weights_of(F logits, const Scale& scale) {
    // The peak goes first, so that no temperature, however small, can overflow.
    const F exponents =
        mul(sub(logits, splat(scale.peak)), splat(scale.inverse_temperature));
    // A logit as small as the bound weighs nothing. It comes first, for NaN to pass.
    const F exponentials = exp_unfused(max(splat(kLeastExponent), exponents));
    const F weights = round(mul(exponentials, splat(scale.unit)));
    return where_less(weights, splat(scale.least), zero(), weights);
}

// Logits [i, i + 16) of a row, and `other` beyond its end.
inline F load_or(const float* logits, Index i, Index width, float other) {
    const F loaded = load_part<F32>(logits, i, width);
    return i + 16 <= width ? loaded : between(loaded, 0, width - i, other);
}

float peak_of(const float* logits, Index begin, Index end) {
    F highest = splat(-kInfinity);
    unsigned nans = 0;
    for (Index i = begin; i < end; i += 16) {
        const F part = load_or(logits, i, end, -kInfinity);
        highest = max(part, highest);  // of NaN and another, the second
        nans |= is_nan(part);
    }
    return nans ? __builtin_nanf("") : largest(highest);
}

double mass_of(const float* logits, Index begin, Index end, const Scale& scale) {
    D sum = no_sum();
    for (Index i = begin; i < end; i += 16) {
        sum = add_exactly(sum, weights_of(load_or(logits, i, end, -kInfinity), scale));
    }
    return total(sum);
}

}  // namespace

void find_peaks(const float* logits, Index width, float* peaks) {
    for (Index begin = 0; begin < width; begin += kLogitBlock) {
        *peaks++ = peak_of(logits, begin, min(begin + kLogitBlock, width));
    }
}

void weigh_blocks(const float* logits, Index width, const Scale& scale, double* masses) {
    for (Index begin = 0; begin < width; begin += kLogitBlock) {
        *masses++ = mass_of(logits, begin, min(begin + kLogitBlock, width), scale);
    }
}

void weigh_each(const float* logits, Index width, const Scale& scale, float* weights) {
    for (Index i = 0; i < width; i += 16) {
        store_part<F32>(weights, i, width, weights_of(load_part<F32>(logits, i, width), scale));
    }
}

Index find_at_least(const float* logits, Index width, float least, std::int32_t* places) {
    Index count = 0;
    for (Index i = 0; i < width; i += 16) {
        // Filled up with NaN, which is at least nothing.
        const F part = load_or(logits, i, width, __builtin_nanf(""));
        for (unsigned bits = is_at_least(part, splat(least)); bits != 0; bits &= bits - 1) {
            places[count++] = static_cast<std::int32_t>(i) + __builtin_ctz(bits);
        }
    }
    return count;
}

}  // namespace inferno::INFERNO_ISA
