// Gated activations of rows: gates in the first half, ups in the second.
#include <math.h>

#include "../kernels/families.h"
#include "elements.h"

namespace inferno::INFERNO_LEVEL {
namespace {

float sigmoid(float x) { return 1.0f / (1.0f + ::expf(-x)); }

// A bound that lets NaN pass.
float clamped(float x, float least, float most) { return x < least ? least : x > most ? most : x; }

float gated(float gate, float up, const Activation& activation, Type type) {
    if (activation.gate == Gate::silu) {
        return rounded_to(type, gate / (1.0f + ::expf(-gate))) * up;
    }
    const float limit = activation.limit;
    gate = clamped(gate, -__builtin_inff(), limit);
    up = clamped(up, -limit, limit);
    return (up + 1.0f) * gate * sigmoid(activation.alpha * gate);
}

}  // namespace

void gate(const Rows& x, const Activation& activation, const Rows& out, Pool& pool) {
    const std::int64_t width = out.width;
    pool.run(x.count, 4, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t t = begin; t < end; ++t) {
            for (std::int64_t i = 0; i < width; ++i) {
                const float gate = read(x, t, i), up = read(x, t, width + i);
                write(out, t, i, gated(gate, up, activation, x.type));
            }
        }
    });
}

}  // namespace inferno::INFERNO_LEVEL
