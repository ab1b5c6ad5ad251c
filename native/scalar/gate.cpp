// Gated activations of rows: gates in the first half, ups in the second.
#include "contract/isa_functions.h"
#include "gated.h"

namespace inferno::INFERNO_ISA {

void gate(const Rows& x, const Activation& activation, const Rows& out, Team& team) {
    const std::int64_t width = out.width;
    team.run(x.count, 4, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t t = begin; t < end; ++t) {
            for (std::int64_t i = 0; i < width; ++i) {
                const float gate = read(x, t, i), up = read(x, t, width + i);
                write(out, t, i, gated(gate, up, activation, x.type));
            }
        }
    });
}

}  // namespace inferno::INFERNO_ISA
