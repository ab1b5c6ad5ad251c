// A row of logits, as choosing a token needs it: its peaks, weights and their sums, candidates.
#include <math.h>

#include "contract/isa_functions.h"

namespace inferno::INFERNO_ISA {
namespace {

constexpr float kLeastExponent = -87.33654f;  // below, e^x is denormal

// The steps of `exponential` in ops/reference/sampling.py; each rounds.
float exp_unfused(float x) {
    const float n = ::rintf(x * 1.442695041f);
    float r = x - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + (r + 1.0f);
    return ::ldexpf(p, static_cast<int>(n));
}

float weight_of(float logit, const Scale& scale) {
    // The peak goes first, so that no temperature, however small, can overflow.
    const float exponent = (logit - scale.peak) * scale.inverse_temperature;
    if (exponent != exponent) return exponent;
    const float exponential = exp_unfused(exponent > kLeastExponent ? exponent : kLeastExponent);
    const float weight = ::rintf(exponential * scale.unit);
    return weight < scale.least ? 0.0f : weight;
}

}  // namespace

void find_peaks(const float* logits, std::int64_t width, float* peaks) {
    for (std::int64_t i = 0; i < width; ++i) {
        float& peak = peaks[i / kLogitBlock];
        if (i % kLogitBlock == 0 || logits[i] > peak || logits[i] != logits[i]) peak = logits[i];
    }
}

void weigh_blocks(const float* logits, std::int64_t width, const Scale& scale, double* masses) {
    for (std::int64_t i = 0; i < width; ++i) {
        if (i % kLogitBlock == 0) masses[i / kLogitBlock] = 0;
        masses[i / kLogitBlock] += weight_of(logits[i], scale);
    }
}

void weigh_each(const float* logits, std::int64_t width, const Scale& scale, float* weights) {
    for (std::int64_t i = 0; i < width; ++i) weights[i] = weight_of(logits[i], scale);
}

std::int64_t find_at_least(const float* logits, std::int64_t width, float least,
                           std::int32_t* places) {
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < width; ++i) {
        if (logits[i] >= least) places[count++] = static_cast<std::int32_t>(i);
    }
    return count;
}

}  // namespace inferno::INFERNO_ISA
