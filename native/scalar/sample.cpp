// What choosing a token asks of a row of logits: its peaks, weights and their sums, candidates.
#include <math.h>

#include "../kernels/families.h"

namespace inferno::INFERNO_LEVEL {
namespace {

float weight_of(float logit, const Scale& scale) {
    // The peak goes first, so that no temperature, however small, can overflow.
    const float exponent = (logit - scale.peak) * scale.inverse_temperature;
    const float weight = ::rintf(::expf(exponent) * scale.unit);
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

}  // namespace inferno::INFERNO_LEVEL
