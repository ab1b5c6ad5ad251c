// Cosines and sines of each token's rotary angles. The C library's own are as exact as can be, and
// fast enough for what is asked once a step.
#include <math.h>

#include "contract/isa_functions.h"

namespace inferno::INFERNO_ISA {

void cos_sin(const BatchView& batch, const float* frequencies, std::int64_t half, float factor,
             float* out, Team& team) {
    const std::int64_t grain = 1 + 256 / (half + 1);
    team.run(batch.num_tokens, grain, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t t = begin; t < end; ++t) {
            float* row = out + t * 2 * half;
            for (std::int64_t i = 0; i < half; ++i) {
                const float angle = static_cast<float>(batch.positions[t]) * frequencies[i];
                row[i] = ::cosf(angle) * factor;
                row[half + i] = ::sinf(angle) * factor;
            }
        }
    });
}

}  // namespace inferno::INFERNO_ISA
